import { signal } from "@preact/signals";
import { ApiError } from "../api/errors";
import { t } from "../i18n";
import { IconButton } from "./Button";

interface Toast {
    id: number;
    kind: "message" | "error";
    text: string;
}

const MESSAGE_MS = 5_000;
const ERROR_MS = 12_000;

const toasts = signal<readonly Toast[]>([]);
let last = 0;

function show(kind: Toast["kind"], text: string, ms: number): void {
    const id = ++last;
    toasts.value = [...toasts.value.slice(-3), { id, kind, text }];
    setTimeout(() => dismiss(id), ms);
}

const dismiss = (id: number): void => void (toasts.value = toasts.value.filter((each) => each.id !== id));

/** Shows a message that something was done. */
export const showMessage = (text: string): void => show("message", text, MESSAGE_MS);

/** Shows an error with the server's message. */
export const showError = (error: unknown): void => show("error", errorMessage(error), ERROR_MS);

export function errorMessage(error: unknown): string {
    if (!(error instanceof ApiError)) return error instanceof Error ? error.message : t("state.failed");
    const message =
        asSentence(error.message) ||
        (error.status === 0 ? t("error.offline") : t("error.status", { status: error.status }));
    return error.reference === null ? message : `${message} (${t("error.reference", { reference: error.reference })})`;
}

/** A server's message, which begins with a small letter. A field's name in front of it stays as it is. */
const asSentence = (message: string): string =>
    message.replace(/^[a-z]+(?= )/, (word) => word.charAt(0).toUpperCase() + word.slice(1));

/** Displays toasts. Mounted once, in the shell. */
export function Toasts() {
    return (
        <div class="toasts" role="status" aria-live="polite">
            {toasts.value.map((each) => (
                <div key={each.id} class={`toast ${each.kind}`}>
                    <span class="grow">{each.text}</span>
                    <IconButton icon="close" label={t("action.dismiss")} isSmall onClick={() => dismiss(each.id)} />
                </div>
            ))}
        </div>
    );
}
