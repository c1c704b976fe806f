import { signal } from "@preact/signals";
import { ApiError } from "../api/errors";
import { t } from "../i18n";
import { IconButton } from "./Button";

interface Toast {
    id: number;
    kind: "told" | "error";
    text: string;
}

const TOLD_MS = 5_000;
const ERROR_MS = 12_000;

const toasts = signal<readonly Toast[]>([]);
let last = 0;

function show(kind: Toast["kind"], text: string, ms: number): void {
    const id = ++last;
    toasts.value = [...toasts.value.slice(-3), { id, kind, text }];
    setTimeout(() => dismiss(id), ms);
}

const dismiss = (id: number): void => void (toasts.value = toasts.value.filter((each) => each.id !== id));

/** Say that something was done. */
export const tell = (text: string): void => show("told", text, TOLD_MS);

/** Say what went wrong, with what the server said about it. */
export const tellError = (error: unknown): void => show("error", sentenceOf(error), ERROR_MS);

export function sentenceOf(error: unknown): string {
    if (!(error instanceof ApiError)) return error instanceof Error ? error.message : t("state.failed");
    const words =
        error.message || (error.status === 0 ? t("error.offline") : t("error.status", { status: error.status }));
    return error.reference === null ? words : `${words} (${t("error.reference", { reference: error.reference })})`;
}

/** Where they appear. Once, in the shell. */
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
