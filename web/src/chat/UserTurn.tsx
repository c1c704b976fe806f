/** A message of the user: what it says, its versions and actions, and the form that edits it. */
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { Button, IconButton } from "../components/Button";
import { CopyButton } from "../components/CopyButton";
import { Icon } from "../components/Icon";
import { Time } from "../components/Time";
import { showError } from "../components/Toast";
import { t } from "../i18n";
import { isFocusFree } from "../browser/focus";
import { AttachmentChip } from "./Attachment";
import { focusComposer } from "./Composer";
import { useConversation } from "./context";
import { DENY, type Permission, permissionIn } from "./questions";
import { isMessage, type Json, textOf, type Turn } from "./wire";

const MAX_COLLAPSED_LENGTH = 900;
const MAX_COLLAPSED_LINES = 16;

export function UserTurn({ turn, children }: { turn: Turn; children?: ComponentChildren }) {
    const { versions } = useConversation();
    const answers = turn.blocks.filter((block) => block.type === "ask_user_answer");
    const texts = turn.blocks.filter((block) => block.type === "text");
    const isEdited = versions.isOpen && versions.editing.value?.turnId === turn.turn_id;
    return (
        <div class="turn user">
            <h3 class="visually-hidden">{t("chat.you")}</h3>
            {answers.map((block, index) => (
                <AnswerList key={index} content={block.content} />
            ))}
            {isEdited ? (
                <Editor turn={turn} />
            ) : (
                texts.length > 0 && (
                    <div class="bubble">
                        {texts.map((block, index) =>
                            block.attachment ? (
                                <AttachmentChip
                                    key={index}
                                    attachment={block.attachment}
                                    note={String(block.content)}
                                    turn={turn}
                                />
                            ) : (
                                <UserText key={index} text={String(block.content)} />
                            ),
                        )}
                    </div>
                )
            )}
            {!isEdited && <Actions turn={turn} />}
            {children}
        </div>
    );
}

/** Below a message: its time, its versions, and what can be done with it. */
function Actions({ turn }: { turn: Turn }) {
    const { versions } = useConversation();
    const text = textOf(turn);
    return (
        <div class="message-foot">
            <span class="message-actions">
                {text && <CopyButton text={text} label={t("chat.copy-message")} />}
                {isMessage(turn) && versions.isOpen && versions.canRepeat(turn) && (
                    <IconButton
                        isSmall
                        icon="edit"
                        label={t("chat.edit-message")}
                        onClick={() => versions.edit(turn)}
                    />
                )}
            </span>
            <Alternatives turn={turn} />
            <Time at={turn.started_at} />
        </div>
    );
}

/** `‹ 2/3 ›`: the versions of a message. */
function Alternatives({ turn }: { turn: Turn }) {
    const { versions } = useConversation();
    const all = turn.alternatives ?? [];
    const at = all.findIndex((each) => each.turn_id === turn.turn_id);
    if (at < 0) return null;
    const go = (step: number): void => {
        const other = all[at + step];
        if (other === undefined) return;
        void versions.show(other).then(() => focusAlternatives(other.turn_id, step), showError);
    };
    const isOpen = versions.isOpen;
    return (
        <span class="alternatives" role="group" aria-label={t("chat.versions")}>
            <IconButton
                isSmall
                icon="chevron"
                label={t("chat.version-before")}
                disabled={!isOpen || at === 0}
                onClick={() => go(-1)}
            />
            <span>
                {at + 1}/{all.length}
            </span>
            <IconButton
                isSmall
                icon="chevron"
                label={t("chat.version-after")}
                disabled={!isOpen || at === all.length - 1}
                onClick={() => go(1)}
            />
        </span>
    );
}

/**
 * Moves the focus to the same arrow of the version that is shown now, or to the other one if it was the last, unless the
 * user has gone elsewhere meanwhile.
 */
function focusAlternatives(turnId: string, step: number): void {
    requestAnimationFrame(() => {
        if (!isFocusFree(document.activeElement?.closest(".alternatives") ?? null)) return;
        const row = `[data-row="${CSS.escape(turnId)}"] .alternatives button`;
        const arrow = document.querySelector<HTMLElement>(`${row}:${step < 0 ? "first" : "last"}-child:enabled`);
        (arrow ?? document.querySelector<HTMLElement>(`${row}:enabled`))?.focus();
    });
}

/** Edits a message in its place. Enter sends it, Escape leaves it as it was. */
function Editor({ turn }: { turn: Turn }) {
    const { versions } = useConversation();
    const area = useRef<HTMLTextAreaElement>(null);
    const isSending = useSignal(false);
    const text = versions.editing.value?.text ?? "";
    useEffect(() => area.current?.focus(), []);
    useLayoutEffect(() => {
        const field = area.current;
        if (field === null) return;
        field.style.height = "auto";
        field.style.height = `${Math.min(field.scrollHeight, window.innerHeight * 0.5)}px`;
    }, [text]);
    const close = (): void => {
        versions.editing.value = null;
        focusComposer();
    };
    const send = async (): Promise<void> => {
        if (isSending.value || (text.trim() === "" && !turn.blocks.some((block) => block.attachment))) return;
        isSending.value = true;
        try {
            await versions.sendEdited(turn, text.trim());
            if (isFocusFree(area.current?.form ?? null)) focusComposer();
        } catch (error) {
            showError(error);
        } finally {
            isSending.value = false;
        }
    };
    return (
        <form
            class="editor"
            onSubmit={(event) => {
                event.preventDefault();
                void send();
            }}
            onKeyDown={(event) => {
                if (event.isComposing) return;
                const isSent = event.key === "Enter" && !event.shiftKey && event.target === area.current;
                if (event.key !== "Escape" && !isSent) return;
                event.preventDefault();
                if (isSent) void send();
                else close();
            }}
        >
            <textarea
                ref={area}
                rows={1}
                dir="auto"
                aria-label={t("chat.edit-message")}
                value={text}
                onInput={(event) =>
                    (versions.editing.value = { turnId: turn.turn_id, text: event.currentTarget.value })
                }
            />
            <div class="editor-foot">
                <span class="grow soft small">{t("chat.edit-why")}</span>
                <Button isSmall onClick={close}>
                    {t("action.cancel")}
                </Button>
                <Button isSmall kind="primary" type="submit" disabled={isSending.value}>
                    {t("chat.send")}
                </Button>
            </div>
        </form>
    );
}

/** A user's text. Long texts are collapsed, so that the answer stays in view. */
function UserText({ text }: { text: string }) {
    const isOpen = useSignal(false);
    const isLong = text.length > MAX_COLLAPSED_LENGTH || text.split("\n").length > MAX_COLLAPSED_LINES;
    return (
        <>
            <div dir="auto" class={isLong && !isOpen.value ? "message-text folded" : "message-text"}>
                {text}
            </div>
            {isLong && (
                <div>
                    <Button kind="plain" isSmall onClick={() => (isOpen.value = !isOpen.value)}>
                        {t(isOpen.value ? "chat.show-less" : "chat.show-all")}
                    </Button>
                </div>
            )}
        </>
    );
}

/** The texts of the answers to a permission, in the protocol's order. */
const DECISIONS = ["chat.allow-once", "chat.allow-always", "chat.deny"] as const;
const DECISIONS_ON_REPEATS = ["chat.run-again", "chat.run-again", "chat.deny"] as const;

/** The question about a permission, and what was decided. */
function permissionTexts(permission: Permission): [question: string, decision: string] {
    const decisions = permission.isRepeat ? DECISIONS_ON_REPEATS : DECISIONS;
    const question = permission.isRepeat ? "chat.repeat-question" : "chat.allow-question";
    return [t(question, { tool: permission.tool }), t(decisions[permission.choice] ?? "chat.deny")];
}

/** The answer to a question, with the question's text. */
function AnswerList({ content }: { content: Json }) {
    if (typeof content !== "object" || content === null || Array.isArray(content)) return null;
    const answers = Array.isArray(content["answers"]) ? content["answers"] : [];
    const permission = permissionIn(content);
    return (
        <ul class="answered">
            {answers.map((each, index) => {
                if (typeof each !== "object" || each === null || Array.isArray(each)) return null;
                const labels = Array.isArray(each["labels"]) ? each["labels"].map(String) : [];
                const [question, ...choices] =
                    permission === null ? [String(each["question"] ?? ""), ...labels] : permissionTexts(permission);
                const text = [...choices, ...(each["custom"] ? [String(each["custom"])] : [])].join(", ");
                return (
                    <li key={index}>
                        <Icon name={permission?.choice === DENY ? "close" : "check"} />
                        <span>
                            <span class="soft">{question}</span> {text}
                        </span>
                    </li>
                );
            })}
        </ul>
    );
}
