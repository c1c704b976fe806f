import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { t } from "../i18n";
import { Button, IconButton } from "./Button";

interface Props {
    title: string;
    onClose: () => void;
    children: ComponentChildren;
}

/** A dialog over the page. The browser's own element keeps the focus inside, and closes it with Escape. */
export function Dialog({ title, onClose, children }: Props) {
    const dialog = useRef<HTMLDialogElement>(null);
    const id = useId();
    // Before the browser draws, and before anybody types: opening moves the focus.
    useLayoutEffect(() => dialog.current?.showModal(), []);
    return (
        <dialog
            ref={dialog}
            class="dialog"
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

/** Ask before something is done that cannot be undone: `if (await confirmed({…})) …`. */
export function confirmed(asked: Omit<Question, "answer">): Promise<boolean> {
    return new Promise((resolve) => {
        question.value = {
            ...asked,
            answer: (isYes) => {
                question.value = null;
                resolve(isYes);
            },
        };
    });
}

/** Where those questions appear. Once, in the shell. */
export function Confirmation() {
    const asked = question.value;
    if (asked === null) return null;
    return (
        <Dialog title={asked.title} onClose={() => asked.answer(false)}>
            <p class="soft">{asked.text}</p>
            <div class="dialog-foot">
                <Button onClick={() => asked.answer(false)}>{t("action.cancel")}</Button>
                <Button kind="danger" onClick={() => asked.answer(true)}>
                    {asked.yes}
                </Button>
            </div>
        </Dialog>
    );
}
