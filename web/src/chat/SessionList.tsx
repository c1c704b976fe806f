/** The list of conversations, with search. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { isReadOnly } from "../api/key";
import { Button, IconButton } from "../components/Button";
import { Failed } from "../components/Empty";
import { Icon } from "../components/Icon";
import { Loading } from "../components/Spinner";
import { ago, t } from "../i18n";
import { go, to } from "../browser/router";
import { sessions } from "./list";
import { bare, type Session } from "./wire";

const WAIT_MS = 200;

export function SessionList({ current }: { current: string }) {
    const waiting = useRef(0);
    const query = useSignal(sessions.query.peek());
    useEffect(() => sessions.follow(), []);
    const search = (text: string): void => {
        query.value = text;
        clearTimeout(waiting.current);
        waiting.current = window.setTimeout(() => void sessions.search(text.trim()), WAIT_MS);
    };
    return (
        <section class="sessions" aria-label={t("nav.conversations")}>
            <div class="sessions-head">
                <div class="searching">
                    <Icon name="search" />
                    <input
                        type="search"
                        class="input"
                        aria-label={t("chat.search")}
                        placeholder={t("chat.search")}
                        value={query.value}
                        onInput={(event) => search(event.currentTarget.value)}
                    />
                </div>
                {!isReadOnly() && (
                    <IconButton kind="primary" icon="plus" label={t("chat.new")} onClick={() => go("conversations")} />
                )}
            </div>
            <Items current={current} />
        </section>
    );
}

function Items({ current }: { current: string }) {
    const items = sessions.items.value;
    if (sessions.error.value !== null && items.length === 0) {
        return <Failed error={sessions.error.value} onRetry={() => void sessions.refresh()} />;
    }
    if (!sessions.isLoaded.value) return <Loading />;
    if (items.length === 0) {
        return <p class="sessions-none">{t(sessions.query.value ? "chat.none-found" : "chat.none")}</p>;
    }
    return (
        <div class="sessions-list">
            <ul>
                {items.map((each) => (
                    <Item key={each.id} session={each} isCurrent={bare(each.id) === current} />
                ))}
            </ul>
            {sessions.isPartial.value && <p class="sessions-none">{t("chat.search-partial")}</p>}
            {items.length < sessions.total.value && (
                <Button kind="plain" onClick={() => void sessions.more()}>
                    {t("chat.more")}
                </Button>
            )}
        </div>
    );
}

function Item({ session, isCurrent }: { session: Session; isCurrent: boolean }) {
    return (
        <li>
            <a
                class="session"
                href={to("conversations", bare(session.id))}
                aria-current={isCurrent ? "true" : undefined}
            >
                <span class="session-title" dir="auto">
                    {session.intent || t("chat.untitled")}
                </span>
                <span class="session-facts">
                    {session.status === "running" && <span class="live" title={t("chat.status.running")} />}
                    {session.status === "waiting_for_input" && (
                        <span class="badge warning">{t("chat.status.waiting")}</span>
                    )}
                    {session.status === "failed" && <span class="badge danger">{t("chat.status.failed")}</span>}
                    <span>{ago(session.updated_at)}</span>
                    {session.is_pinned && (
                        <span class="session-pin">
                            <Icon name="pin" />
                            <span class="visually-hidden">{t("chat.pinned")}</span>
                        </span>
                    )}
                </span>
            </a>
        </li>
    );
}
