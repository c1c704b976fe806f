/** The message composer: text, and images or files that are chosen, pasted or dropped. */
import { type Signal, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { IconButton } from "../components/Button";
import { Icon } from "../components/Icon";
import { showError } from "../components/Toast";
import { size, t } from "../i18n";
import { dataUrl, hasFiles } from "../browser/files";
import type { Part } from "./wire";

/** The server's limit for all attachments of a message together. */
const MAX_BYTES = 10 * 1024 * 1024;
const PICTURES = /^image\/(png|jpeg|gif|webp)$/;

export interface Attached {
    name: string;
    bytes: number;
    part: Part;
    /** The data URL of an image; null for other files. */
    picture: string | null;
}

export interface Draft {
    text: Signal<string>;
    attached: Signal<readonly Attached[]>;
}

interface Props {
    draft: Draft;
    placeholder: string;
    isRunning: boolean;
    isStopping: boolean;
    /** Resolves when the server has accepted the message. Only then is the draft cleared. */
    onSend: (parts: Part[]) => Promise<void>;
    onStop: () => void;
    /** The up arrow in an empty field: edits the newest message. */
    onEdit?: () => void;
}

/** Moves the focus to the composer, when what had it goes away. */
export const focusComposer = (): void => document.querySelector<HTMLElement>(".composer textarea")?.focus();

export function Composer({ draft, placeholder, isRunning, isStopping, onSend, onStop, onEdit }: Props) {
    const { text, attached } = draft;
    const area = useRef<HTMLTextAreaElement>(null);
    const chooser = useRef<HTMLInputElement>(null);
    const isSending = useSignal(false);
    const isOver = useSignal(false);
    const isEmpty = text.value.trim() === "" && attached.value.length === 0;

    useLayoutEffect(() => {
        const field = area.current;
        if (field === null) return;
        field.style.height = "auto";
        field.style.height = `${Math.min(field.scrollHeight, window.innerHeight * 0.4)}px`;
    }, [text.value]);
    useEffect(() => {
        if (!matchMedia("(pointer: coarse)").matches) area.current?.focus(); // it would open a phone's keyboard
    }, []);
    // Attachments make the form taller, and would push its button out of a small window.
    useEffect(() => {
        if (attached.value.length > 0) area.current?.form?.scrollIntoView({ block: "nearest" });
    }, [attached.value]);

    const send = async (): Promise<void> => {
        if (isEmpty || isRunning || isSending.value) return;
        const content = text.value.trim();
        const before = attached.value;
        const parts: Part[] = [
            ...before.map((each) => each.part),
            ...(content ? [{ type: "text" as const, text: content }] : []),
        ];
        isSending.value = true;
        text.value = "";
        attached.value = [];
        try {
            await onSend(parts);
        } catch (error) {
            // Before what the user has written meanwhile.
            text.value = [content, text.peek()].filter(Boolean).join("\n");
            attached.value = [...before, ...attached.peek()];
            showError(error);
        } finally {
            isSending.value = false;
        }
    };
    const add = async (files: Iterable<File>): Promise<void> => {
        const read = await Promise.all([...files].map(attachedOf));
        const next = [...attached.value, ...read];
        if (next.reduce((sum, each) => sum + each.bytes, 0) > MAX_BYTES)
            showError(new Error(t("chat.too-large", { size: size(MAX_BYTES) })));
        else attached.value = next;
    };
    const onKeyDown = (event: KeyboardEvent): void => {
        if (event.key === "ArrowUp" && isEmpty && !event.isComposing && onEdit !== undefined) {
            event.preventDefault();
            onEdit();
        }
        // Enter that confirms an input method's suggestion does not send the message.
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        void send();
    };
    const onPaste = (event: ClipboardEvent): void => {
        const files = [...(event.clipboardData?.files ?? [])];
        if (files.length === 0) return;
        event.preventDefault();
        void add(files);
    };
    const addFiles = useRef(add);
    addFiles.current = add;
    // Files may be dropped anywhere: beside the field, the browser would open them and leave the page.
    useEffect(() => {
        const over = (event: DragEvent): void => void (isOver.value = hasFiles(event));
        const leave = (event: DragEvent): void => void (isOver.value = event.relatedTarget !== null && isOver.value);
        const drop = (event: DragEvent): void => {
            isOver.value = false;
            if (hasFiles(event)) void addFiles.current(event.dataTransfer?.files ?? []);
        };
        addEventListener("dragover", over);
        addEventListener("dragleave", leave);
        addEventListener("drop", drop);
        return () => {
            removeEventListener("dragover", over);
            removeEventListener("dragleave", leave);
            removeEventListener("drop", drop);
        };
    }, []);

    return (
        <form
            class={isOver.value ? "composer over" : "composer"}
            onSubmit={(event) => {
                event.preventDefault();
                void send();
            }}
        >
            {attached.value.length > 0 && (
                <ul class="attached" aria-label={t("nav.attachments")}>
                    {attached.value.map((each) => (
                        <AttachedItem
                            key={each}
                            attached={each}
                            onRemove={() => (attached.value = attached.value.filter((other) => other !== each))}
                        />
                    ))}
                </ul>
            )}
            <textarea
                ref={area}
                rows={1}
                dir="auto"
                aria-label={t("chat.message")}
                placeholder={placeholder}
                value={text.value}
                onInput={(event) => (text.value = event.currentTarget.value)}
                onKeyDown={onKeyDown}
                onPaste={onPaste}
            />
            <div class="composer-foot">
                <input
                    ref={chooser}
                    type="file"
                    multiple
                    hidden
                    onChange={(event) => {
                        void add(event.currentTarget.files ?? []);
                        event.currentTarget.value = "";
                    }}
                />
                <IconButton icon="attach" label={t("chat.attach")} onClick={() => chooser.current?.click()} />
                <span class="grow soft small composer-hint">{t("chat.keys")}</span>
                {isRunning ? (
                    <IconButton
                        kind="normal"
                        icon="stop"
                        label={t("chat.stop")}
                        disabled={isStopping}
                        onClick={onStop}
                    />
                ) : (
                    <IconButton
                        kind="primary"
                        icon="send"
                        type="submit"
                        label={t("chat.send")}
                        disabled={isEmpty || isSending.value}
                    />
                )}
            </div>
        </form>
    );
}

function AttachedItem({ attached, onRemove }: { attached: Attached; onRemove: () => void }) {
    return (
        <li>
            {attached.picture === null ? <Icon name="file" /> : <img src={attached.picture} alt="" />}
            <span class="grow">
                <span class="attached-name">{attached.name}</span>
                <span class="soft small">{size(attached.bytes)}</span>
            </span>
            <IconButton icon="close" isSmall label={t("chat.detach", { name: attached.name })} onClick={onRemove} />
        </li>
    );
}

async function attachedOf(file: File): Promise<Attached> {
    const url = await dataUrl(file);
    const isPicture = PICTURES.test(file.type);
    const part: Part = isPicture
        ? { type: "image_url", image_url: { url } }
        : { type: "file", name: file.name, data: url.slice(url.indexOf(",") + 1) };
    return { name: file.name || file.type, bytes: file.size, part, picture: isPicture ? url : null };
}
