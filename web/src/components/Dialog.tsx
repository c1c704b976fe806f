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

/** A modal dialog. The browser's own element traps the focus and closes on Escape. */
export function Dialog({ title, isWide = false, onClose, children }: Props) {
    const dialog = useRef<HTMLDialogElement>(null);
    const id = useId();
    // Before the first paint and before any key press, because opening moves the focus.
    useLayoutEffect(() => dialog.current?.showModal(), []);
    return (
        <dialog
            ref={dialog}
            class={isWide ? "dialog wide" : "dialog"}
            aria-labelledby={id}
            onClose={onClose}
            onMouseDown={(event) => event.target === dialog.current && dialog.current?.close()}
        >
            <div class="dialog-head">
                <h2 id={id}>{title}</h2>
                <IconButton icon="close" label={t("action.close")} isSmall onClick={() => dialog.current?.close()} />
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
