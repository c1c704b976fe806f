/** One conversation: its header, its turns and the composer. */
import { useComputed } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { ApiError } from "../api/errors";
import { isReadOnly } from "../api/key";
import { Button, IconButton } from "../components/Button";
import { Empty, Failed } from "../components/Empty";
import { Icon } from "../components/Icon";
import { Loading } from "../components/Spinner";
import { showError } from "../components/Toast";
import { to } from "../browser/router";
import { t } from "../i18n";
import { Composer, focusComposer } from "./Composer";
import { Current, useConversation } from "./context";
import { Conversation } from "./conversation";
import { draftOf } from "./drafts";
import { Feed } from "./Feed";
import { Header } from "./Header";
import { AnswerFoot, InspectLink, TurnView } from "./Turn";
import type { Entry } from "./turns";
import { isMessage, type Part, type Turn } from "./wire";

/** Dialogs, menus and searches close or clear on Escape. */
const TAKES_ESCAPE = "dialog[open], [role=menu], input[type=search]:focus";
const NOT_FOUND = new Set([403, 404]);

export function Chat({ id, first }: { id: string; first: readonly Part[] | null }) {
    const conversation = useMemo(() => new Conversation(id, first), [id]);
    useEffect(() => () => conversation.close(), [conversation]);
    useEscape(conversation);
    const error = conversation.error.value;
    const isNotFound = error instanceof ApiError && (NOT_FOUND.has(error.status) || error.code === "forbidden");
    if (conversation.isDeleted.value || isNotFound) {
        return (
            <div>
                <Empty icon="chat" title={t("chat.gone")}>
                    <a class="button" href={to("conversations")}>
                        {t("chat.back")}
                    </a>
                </Empty>
            </div>
        );
    }
    if (!conversation.isLoaded.value && error !== null) {
        return <Failed error={error} onRetry={() => void conversation.load()} />;
    }
    return (
        <Current.Provider value={conversation}>
            <section class="chat" aria-label={t("chat.conversation")}>
                <Header />
                {conversation.isLoaded.value ? <Turns /> : <Loading />}
                <Foot />
            </section>
        </Current.Provider>
    );
}

function Turns() {
    const conversation = useConversation();
    const entries = conversation.entries.value;
    if (entries.length === 0 && conversation.sending.value === null) {
        return (
            <div class="feed-frame">
                <Empty icon="chat" title={t("chat.nothing-yet")} />
            </div>
        );
    }
    return (
        <Feed
            items={entries}
            idOf={(entry) => entry.id}
            label={t("chat.conversation")}
            isBusy={conversation.isRunning.value}
            isSending={conversation.sending.value !== null}
            foot={<Tail />}
        >
            {(entry, index) => <Item entry={entry} before={entries[index - 1]} after={entries[index + 1]} />}
        </Feed>
    );
}

const isAnswer = (entry: Entry | undefined): boolean => entry?.turn.peek().role === "assistant";

/** Whether the turn continues an answer: another step of the agent, or the user's reply to its question. */
const continuesAnswer = (entry: Entry | undefined): boolean => {
    const turn = entry?.turn.peek();
    return turn?.role === "assistant" || (turn?.role === "user" && !isMessage(turn));
};

function Item({ entry, before, after }: { entry: Entry; before: Entry | undefined; after: Entry | undefined }) {
    const agent = useConversation().detail.value?.solution;
    const isLast = !continuesAnswer(after);
    const isNewest = after === undefined;
    if (!isAnswer(entry)) {
        return (
            <TurnView entry={entry} isNewest={isNewest}>
                {isNewest && <RetryFoot run={entry.turn.value.chat_run_id} />}
            </TurnView>
        );
    }
    return (
        <TurnView
            entry={entry}
            isNewest={isNewest}
            isContinued={isAnswer(after)}
            speaker={continuesAnswer(before) ? null : (agent?.name ?? t("chat.agent"))}
        >
            {isLast && <AnswerEnd entry={entry} isNewest={isNewest} />}
        </TurnView>
    );
}

/** Below the last step of an answer: totals for the whole answer. */
function AnswerEnd({ entry, isNewest }: { entry: Entry; isNewest: boolean }) {
    const conversation = useConversation();
    const status = entry.turn.value.status;
    if (status === "streaming" || status === "paused" || (isNewest && conversation.isRunning.value)) return null;
    const turns = answerBefore(conversation.entries.value, entry);
    return <AnswerFoot turns={turns}>{isNewest ? <Retry /> : <Retry answer={entry} />}</AnswerFoot>;
}

/** Below a message whose run ended without output. */
function RetryFoot({ run }: { run: string | null | undefined }) {
    if (useConversation().isRunning.value) return null;
    return (
        <div class="answer-foot">
            <Retry />
            <InspectLink run={run} />
        </div>
    );
}

/** Sends the message again that an answer belongs to; by default, the newest one. */
function Retry({ answer }: { answer?: Entry }) {
    const { entries, versions } = useConversation();
    const all = entries.value;
    const last = answer === undefined ? all.length - 1 : all.indexOf(answer);
    const message = all.findLast((each, at) => at <= last && isMessage(each.turn.peek()))?.turn.peek();
    if (message === undefined || !versions.isOpen || !versions.canRepeat(message)) return null;
    const retry = (): void => {
        focusComposer();
        void versions.retry(message).catch(showError);
    };
    if (answer !== undefined) return <IconButton isSmall icon="retry" label={t("chat.regenerate")} onClick={retry} />;
    return (
        <Button kind="plain" isSmall icon="retry" onClick={retry}>
            {t("chat.retry")}
        </Button>
    );
}

function answerBefore(entries: readonly Entry[], last: Entry): Turn[] {
    const turns: Turn[] = [];
    for (let at = entries.indexOf(last); at >= 0 && continuesAnswer(entries[at]); at -= 1) {
        const turn = entries[at]?.turn.value;
        if (turn?.role === "assistant") turns.unshift(turn);
    }
    return turns;
}

/** Below the last turn: the message being sent, the progress indicator and notices. */
function Tail() {
    const conversation = useConversation();
    const sending = conversation.sending.value;
    const last = conversation.entries.value.at(-1)?.turn.value;
    const isQuiet = useComputed(() => {
        const turn = conversation.entries.value.at(-1)?.turn.value;
        return conversation.isRunning.value && !(turn?.status === "streaming" && turn.blocks.length > 0);
    });
    return (
        <div class="feed-column tail">
            {sending && (
                <div class="turn user pending">
                    <div class="bubble">
                        {sending.map((part, index) =>
                            part.type === "text" ? (
                                <div key={index} dir="auto" class="message-text">
                                    {part.text}
                                </div>
                            ) : part.type === "image_url" ? (
                                <img
                                    key={index}
                                    class="message-image"
                                    src={part.image_url.url}
                                    alt={t("chat.picture")}
                                />
                            ) : (
                                <span key={index} class="attachment">
                                    <Icon name="file" />
                                    {part.name}
                                </span>
                            ),
                        )}
                    </div>
                </div>
            )}
            {(isQuiet.value || sending) && (
                <div class="working" role="status" aria-label={t("chat.working")}>
                    <i />
                    <i />
                    <i />
                </div>
            )}
            {conversation.notices.value.map((notice, index) => (
                <div key={index} class={`notice ${notice.status ?? "info"}`} role="status">
                    <Icon name="warning" />
                    <span>{[notice.title, notice.detail ?? notice.message].filter(Boolean).join(": ")}</span>
                </div>
            ))}
            <div class="visually-hidden" role="status">
                {!conversation.isRunning.value && last?.status === "completed" && last.role === "assistant"
                    ? t("chat.answer-done")
                    : ""}
            </div>
        </div>
    );
}

/** Escape stops the answer, unless something that is open takes the key first. */
function useEscape(conversation: Conversation): void {
    useEffect(() => {
        const stop = (event: KeyboardEvent): void => {
            const isTaken = event.defaultPrevented || event.isComposing || document.querySelector(TAKES_ESCAPE);
            if (event.key !== "Escape" || isTaken || !conversation.isRunning.peek()) return;
            event.preventDefault();
            void conversation.stop().catch(showError);
        };
        addEventListener("keydown", stop);
        return () => removeEventListener("keydown", stop);
    }, [conversation]);
}

function editNewest({ entries, versions }: Conversation): void {
    const newest = entries
        .peek()
        .findLast((each) => isMessage(each.turn.peek()))
        ?.turn.peek();
    if (newest !== undefined && versions.isOpen && versions.canRepeat(newest)) versions.edit(newest);
}

function Foot() {
    const conversation = useConversation();
    const detail = conversation.detail.value;
    if (detail?.viewer_role === "viewer") return <p class="composer-frame soft small">{t("chat.viewer")}</p>;
    if (isReadOnly()) return <p class="composer-frame soft small">{t("chat.read-only")}</p>;
    return (
        <div class="composer-frame">
            <Composer
                key={conversation.id}
                draft={draftOf(conversation.id)}
                placeholder={
                    conversation.isWaiting.value
                        ? t("chat.placeholder-waiting")
                        : t("chat.placeholder", { agent: detail?.solution?.name ?? t("chat.agent") })
                }
                isRunning={conversation.isRunning.value}
                isStopping={conversation.isStopping.value}
                onSend={(parts) => conversation.say(parts)}
                onStop={() => void conversation.stop().catch(showError)}
                onEdit={() => editNewest(conversation)}
            />
        </div>
    );
}
