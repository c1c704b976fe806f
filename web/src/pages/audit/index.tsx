/** The audit log, for admins: who did what matters for security, newest first. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api } from "../../api/client";
import { Button } from "../../components/Button";
import { Empty, Failed } from "../../components/Empty";
import { Filter } from "../../components/Filter";
import { Loading } from "../../components/Spinner";
import { count, dateTime, type Key, t } from "../../i18n";
import "../pages.css";

interface Entry {
    readonly entry_id: string;
    readonly at: string;
    readonly action: string;
    readonly user?: string;
    readonly address?: string;
    readonly target?: string;
    readonly detail?: string;
    readonly count?: number;
}

const PAGE = 100;
const TYPING_MS = 250;
const ACTIONS: Readonly<Record<string, Key>> = {
    "key.created": "audit.key-created",
    "key.renamed": "audit.key-renamed",
    "key.limited": "audit.key-limited",
    "key.revoked": "audit.key-revoked",
    "user.limited": "audit.user-limited",
    "login.succeeded": "audit.login-succeeded",
    "login.refused": "audit.login-refused",
    "limit.reached": "audit.limit-reached",
    "session.deleted": "audit.session-deleted",
    "session.exported": "audit.session-exported",
    "session.shared": "audit.session-shared",
    "session.unshared": "audit.session-unshared",
    "share.created": "audit.share-created",
    "share.revoked": "audit.share-revoked",
};

/** An action in words. A newer server may have more of them. */
function inWords(action: string): string {
    const key = ACTIONS[action];
    return key === undefined ? action : t(key);
}

export default function Page() {
    const typed = useSignal("");
    const user = useSignal("");
    const action = useSignal("");
    const entries = useSignal<readonly Entry[] | null>(null);
    const isComplete = useSignal(false);
    const error = useSignal<unknown>(null);
    useEffect(() => {
        const settled = setTimeout(() => (user.value = typed.value.trim()), TYPING_MS);
        return () => clearTimeout(settled);
    }, [typed.value]);
    const load = async (before: readonly Entry[], signal?: AbortSignal): Promise<void> => {
        const query = { limit: PAGE, user: user.value, action: action.value, before: before.at(-1)?.entry_id };
        const isStale = (): boolean =>
            signal?.aborted === true || query.user !== user.value || query.action !== action.value;
        try {
            const page = await api.get<{ readonly entries: readonly Entry[] }>("/audit", query, signal);
            if (isStale()) return;
            entries.value = [...before, ...page.entries];
            isComplete.value = page.entries.length < PAGE;
            error.value = null;
        } catch (fault) {
            if (!isStale()) error.value = fault;
        }
    };
    useEffect(() => {
        const abort = new AbortController();
        void load([], abort.signal);
        return () => abort.abort();
    }, [user.value, action.value]);
    const found = entries.value;
    return (
        <div class="page">
            <div class="page-body">
                <header class="page-head">
                    <h1>{t("nav.audit")}</h1>
                    <p class="soft">{t("audit.about")}</p>
                </header>
                <div class="tools">
                    <input
                        class="input search"
                        type="search"
                        aria-label={t("audit.user")}
                        placeholder={t("audit.user")}
                        value={typed.value}
                        onInput={(event) => (typed.value = event.currentTarget.value)}
                    />
                    <Filter
                        label={t("audit.action")}
                        value={action.value}
                        onValue={(next) => (action.value = next)}
                        options={[
                            ["", t("audit.any")],
                            ...Object.keys(ACTIONS).map((each) => [each, inWords(each)] as const),
                        ]}
                    />
                </div>
                {found === null && error.value === null && <Loading />}
                {error.value !== null && <Failed error={error.value} onRetry={() => void load([])} />}
                {found?.length === 0 && <Empty icon="list" title={t("audit.none")} />}
                {found !== null && (
                    <ul class="items dense" aria-label={t("nav.audit")}>
                        {found.map((entry) => (
                            <Item key={entry.entry_id} entry={entry} />
                        ))}
                    </ul>
                )}
                {found !== null && !isComplete.value && (
                    <div class="more">
                        <Button onClick={() => void load(found)}>{t("chat.more")}</Button>
                    </div>
                )}
            </div>
        </div>
    );
}

function Item({ entry }: { entry: Entry }) {
    const { user, address, target, detail, count: times = 1 } = entry;
    return (
        <li class="card item">
            <h2 class="item-text">
                {inWords(entry.action)}
                {times > 1 && <span class="soft"> · {t("audit.times", { count: count(times) })}</span>}
            </h2>
            <div class="item-facts">
                <time datetime={entry.at}>{dateTime(entry.at)}</time>
                {user && <span>{user}</span>}
                {address && <code>{address}</code>}
                {detail && <span class="item-text">{detail}</span>}
                {target && <code class="item-text">{target}</code>}
            </div>
        </li>
    );
}
