/** The protocol lens: a session as each of the four protocols tells it, side by side and live. */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { api } from "../../api/client";
import { useLoaded } from "../../api/loading";
import { bare } from "../../chat/wire";
import { Empty, Failed } from "../../components/Empty";
import { Loading } from "../../components/Spinner";
import { t } from "../../i18n";
import type { Protocol } from "../../lens/frames";
import { align, folded } from "../../lens/align";
import { Watch } from "../../lens/watch";
import { replace, to } from "../../shell/router";
import { Detail } from "./Detail";
import { Grid } from "./Grid";
import { Head, type View } from "./Head";
import { History } from "./History";
import { Say } from "./Say";
import "./lens.css";

export interface SessionItem {
    readonly id: string;
    readonly intent: string;
    readonly solution_id: string | null;
    readonly created_at: string;
}

const SHOWN = 100;

export default function Page({ id }: { id: string }) {
    const { state, reload } = useLoaded(
        (signal) => api.get<{ items: SessionItem[] }>("/api/sessions", { limit: SHOWN }, signal),
        [],
    );
    const { value, error } = state.value;
    const newest = value?.items[0];
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
    return <Chosen key={bare(id)} id={bare(id)} listed={value.items} />;
}

/** The session's agent is part of its address on AG-UI; AAP tells it for all sessions, wherever they were made. */
function Chosen({ id, listed }: { id: string; listed: readonly SessionItem[] }) {
    const { state, reload } = useLoaded(
        async (signal) => {
            const session = await api.get<SessionItem>(`/api/sessions/sess_${id}`, {}, signal);
            const told = await api
                .get<{ agent: { name: string } }>(`/aap/v3/sessions/${id}`, {}, signal)
                .catch(() => null);
            return { session, agent: told?.agent.name ?? session.solution_id ?? "" };
        },
        [id],
    );
    const { value, error } = state.value;
    if (error !== null) return <Failed error={error} onRetry={() => void reload()} />;
    if (value === null) return <Loading />;
    const { session, agent } = value;
    const sessions = listed.some((each) => bare(each.id) === id) ? listed : [session, ...listed];
    return <Lens session={session} agent={agent} sessions={sessions} />;
}

interface LensProps {
    session: SessionItem;
    agent: string;
    sessions: readonly SessionItem[];
}

function Lens({ session, agent, sessions }: LensProps) {
    const watch = useMemo(() => new Watch(bare(session.id), agent), [session.id, agent]);
    useEffect(() => () => watch.close(), [watch]);
    const isFolded = useSignal(true);
    const view = useSignal<View>("events");
    const opened = useSignal<ReadonlySet<string>>(new Set());
    const selected = useSignal<string | null>(null);
    const narrow = useSignal<Protocol>("aap");
    const rows = useMemo(() => align(watch.columns.value), [watch.columns.value]);
    const shown = useMemo(
        () => (isFolded.value ? folded(rows, opened.value) : rows),
        [rows, isFolded.value, opened.value],
    );
    const row = shown.find((each) => each.key === selected.value) ?? null;
    const open = (key: string): void => void (opened.value = new Set([...opened.value, key]));
    return (
        <div class="lens" data-narrow={narrow.value}>
            <Head watch={watch} session={session} sessions={sessions} isFolded={isFolded} view={view} />
            {shown.length === 0 && watch.runs.value.length === 0 ? (
                <Empty icon="lens" title={t("lens.no-run")}>
                    <p>{t("lens.no-run-why")}</p>
                </Empty>
            ) : view.value === "history" ? (
                <History place={watch.place.value} ended={watch.runs.value.filter((run) => run.isOver).length} />
            ) : (
                <Grid
                    watch={watch}
                    rows={shown}
                    narrow={narrow}
                    selected={selected.value}
                    onSelect={(key) => (selected.value = key)}
                    onOpen={open}
                />
            )}
            {row !== null && view.value === "events" && (
                <Detail row={row} place={watch.place.value} onClose={() => (selected.value = null)} />
            )}
            <Say watch={watch} />
        </div>
    );
}
