/** The protocol lens: one session in up to four protocols, side by side and live. */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { api } from "../../api/client";
import { isReadOnly } from "../../api/key";
import { useLoaded } from "../../api/loading";
import { Throttle } from "../../api/throttle";
import { watchSessions } from "../../chat/socket";
import { bare } from "../../chat/wire";
import { Empty, Failed } from "../../components/Empty";
import { Loading } from "../../components/Spinner";
import { t } from "../../i18n";
import type { Protocol } from "../../lens/frames";
import { align, collapse } from "../../lens/align";
import { chosenProtocols } from "../../lens/choice";
import { SessionMonitor } from "../../lens/monitor";
import { replace, to } from "../../browser/router";
import { Detail } from "./Detail";
import { Grid } from "./Grid";
import { Head, type View } from "./Head";
import { History } from "./History";
import { Say } from "./Say";
import type { SessionItem } from "./session";
import "./lens.css";

const MAX_SESSIONS = 100;

export default function Page({ id }: { id: string }) {
    const { state, reload } = useLoaded(
        (signal) => api.get<{ items: SessionItem[] }>("/api/sessions", { limit: MAX_SESSIONS }, signal),
        [],
    );
    const { value, error } = state.value;
    const newest = value?.items[0];
    useEffect(() => {
        const loading = new Throttle(reload);
        const unwatch = watchSessions(() => loading.soon()); // titles change, and new sessions begin
        return () => {
            unwatch();
            loading.cancel();
        };
    }, []);
    useEffect(() => {
        if (id === "" && newest !== undefined) replace("lens", bare(newest.id));
    }, [id, newest]);
    if (error !== null && value === null) return <Failed error={error} onRetry={() => void reload()} />;
    if (value === null) return <Loading />;
    if (id === "") {
        return (
            <Empty icon="lens" title={t("lens.empty")}>
                <p>{t("lens.empty-why")}</p>
                <a class="button primary" href={to("conversations")}>
                    {t("nav.conversations")}
                </a>
            </Empty>
        );
    }
    return <Chosen key={bare(id)} id={bare(id)} recent={value.items} />;
}

/**
 * The agent is part of a session's address in AG-UI. AAP returns it for every session, whichever protocol created it.
 */
function Chosen({ id, recent }: { id: string; recent: readonly SessionItem[] }) {
    const { state, reload } = useLoaded(
        async (signal) => {
            const session = await api.get<SessionItem>(`/api/sessions/sess_${id}`, {}, signal);
            const details = await api
                .get<{ agent: { name: string } }>(`/aap/v3/sessions/${id}`, {}, signal)
                .catch(() => null);
            return { session, agent: details?.agent.name ?? session.solution_id ?? "" };
        },
        [id],
    );
    const { value, error } = state.value;
    if (error !== null) return <Failed error={error} onRetry={() => void reload()} />;
    if (value === null) return <Loading />;
    const { agent } = value;
    const listed = recent.find((each) => bare(each.id) === id);
    const session = listed ?? value.session;
    const sessions = listed === undefined ? [session, ...recent] : recent;
    return <Lens session={session} agent={agent} sessions={sessions} />;
}

interface LensProps {
    session: SessionItem;
    agent: string;
    sessions: readonly SessionItem[];
}

function Lens({ session, agent, sessions }: LensProps) {
    const protocols = chosenProtocols();
    const monitor = useMemo(() => new SessionMonitor(bare(session.id), agent, protocols), [session.id, agent]);
    useEffect(() => () => monitor.close(), [monitor]);
    useEffect(() => monitor.show(protocols), [monitor, protocols.join()]);
    const isCollapsed = useSignal(true);
    const view = useSignal<View>("events");
    const opened = useSignal<ReadonlySet<string>>(new Set());
    const selected = useSignal<string | null>(null);
    const tab = useSignal<Protocol>("aap");
    const narrow = protocols.find((each) => each === tab.value) ?? protocols[0] ?? "aap";
    const rows = useMemo(() => align(monitor.columns.value, protocols), [monitor.columns.value, protocols.join()]);
    const visible = useMemo(
        () => (isCollapsed.value ? collapse(rows, opened.value) : rows),
        [rows, isCollapsed.value, opened.value],
    );
    const row = visible.find((each) => each.key === selected.value) ?? null;
    const isEmpty = visible.length === 0 && monitor.runs.value.length === 0;
    const open = (key: string): void => void (opened.value = new Set([...opened.value, key]));
    return (
        <div class="lens" data-narrow={narrow} style={{ "--columns": protocols.length }}>
            <Head
                monitor={monitor}
                protocols={protocols}
                session={session}
                sessions={sessions}
                isCollapsed={isCollapsed}
                view={view}
            />
            {isEmpty && monitor.streams.value["ag-ui"].state === "opening" ? (
                <Loading />
            ) : isEmpty ? (
                <Empty icon="lens" title={t("lens.no-run")}>
                    <p>{t("lens.no-run-why")}</p>
                </Empty>
            ) : view.value === "history" ? (
                <History
                    place={monitor.place.value}
                    protocols={protocols}
                    ended={monitor.runs.value.filter((run) => run.isOver).length}
                />
            ) : (
                <Grid
                    monitor={monitor}
                    protocols={protocols}
                    rows={visible}
                    narrow={narrow}
                    onNarrow={(protocol) => (tab.value = protocol)}
                    selected={selected.value}
                    onSelect={(key) => (selected.value = key)}
                    onOpen={open}
                />
            )}
            {row !== null && view.value === "events" && (
                <Detail
                    row={row}
                    protocols={protocols}
                    place={monitor.place.value}
                    onClose={() => (selected.value = null)}
                />
            )}
            {!isReadOnly() && <Say monitor={monitor} />}
        </div>
    );
}
