import { useSignal } from "@preact/signals";
import { t } from "../i18n";
import { IconButton } from "./Button";
import { tellError } from "./Toast";

const SHOWN_MS = 1_500;

/** Copies a text, and shows for a moment that it did. */
export function CopyButton({ text, label }: { text: string | (() => string); label?: string }) {
    const isDone = useSignal(false);
    const copy = async (): Promise<void> => {
        try {
            await toClipboard(typeof text === "string" ? text : text());
            isDone.value = true;
            setTimeout(() => (isDone.value = false), SHOWN_MS);
        } catch (error) {
            tellError(error);
        }
    };
    return (
        <IconButton
            icon={isDone.value ? "check" : "copy"}
            label={isDone.value ? t("action.copied") : (label ?? t("action.copy"))}
            isSmall
            onClick={() => void copy()}
        />
    );
}

/** Browsers offer their clipboard to pages of https and of this machine only; elsewhere the old way still works. */
export async function toClipboard(text: string): Promise<void> {
    if (navigator.clipboard !== undefined) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
}
