import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { t } from "../i18n";
import { Button, IconButton } from "./Button";

interface Props {
    title: string;
    /** As wide as the window allows, for pictures. */
    isWide?: boolean;
    onClose: () => void;
    children: ComponentChildren;
}

/**
 * Opens a modal dialog, and closes it when it goes away. Whatever closes it says so at once: the browser's `close` event
 * comes later, when the user may have opened the dialog again.
 */
export function useModal(onClose: () => void) {
    const dialog = useRef<HTMLDialogElement>(null);
    // Before the first paint and before any key press, because opening moves the focus.
    useLayoutEffect(() => {
        const element = dialog.current;
        element?.showModal();
        return () => element?.close();
    }, []);
    return {
        ref: dialog,
        onCancel: (event: Event) => {
            event.preventDefault();
            onClose();
        },
        onClose: () => dialog.current !== null && onClose(),
        onMouseDown: (event: Event) => event.target === dialog.current && onClose(),
    };
}

/** A modal dialog. The browser's own element traps the focus and closes on Escape. */
export function Dialog({ title, isWide = false, onClose, children }: Props) {
    const modal = useModal(onClose);
    const id = useId();
    return (
        <dialog {...modal} class={isWide ? "dialog wide" : "dialog"} aria-labelledby={id}>
            <div class="dialog-head">
                <h2 id={id}>{title}</h2>
                <IconButton icon="close" label={t("action.close")} isSmall onClick={onClose} />
            </div>
            <div class="dialog-body">{children}</div>
        </dialog>
    );
}

interface Question {
    title: string;
    text: string;
    yes: string;
    answer: (isYes: boolean) => void;
}

const question = signal<Question | null>(null);

/** Asks the user to confirm an action that cannot be undone: `if (await confirmed({…})) …`. */
export function confirmed(request: Omit<Question, "answer">): Promise<boolean> {
    return new Promise((resolve) => {
        question.value = {
            ...request,
            answer: (isYes) => {
                question.value = null;
                resolve(isYes);
            },
        };
    });
}

/** Displays confirmation dialogs. Mounted once, in the shell. */
export function Confirmation() {
    const request = question.value;
    if (request === null) return null;
    return (
        <Dialog title={request.title} onClose={() => request.answer(false)}>
            <p class="soft">{request.text}</p>
            <div class="dialog-foot">
                <Button onClick={() => request.answer(false)}>{t("action.cancel")}</Button>
                <Button kind="danger" onClick={() => request.answer(true)}>
                    {request.yes}
                </Button>
            </div>
        </Dialog>
    );
}
