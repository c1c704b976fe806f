import { useSignal } from "@preact/signals";
import { t } from "../i18n";
import { IconButton } from "./Button";
import { tellError } from "./Toast";

const SHOWN_MS = 1_500;

/** Copies a text, and shows for a moment that it did. */
export function CopyButton({ text, label }: { text: string; label?: string }) {
    const { isDone, copy } = useCopying();
    return (
        <IconButton
            icon={isDone ? "check" : "copy"}
            label={isDone ? t("action.copied") : (label ?? t("action.copy"))}
            isSmall
            onClick={() => void copy(text)}
        />
    );
}

/** What buttons that copy are made of: `isDone` holds for a moment after it was done. */
export function useCopying() {
    const isDone = useSignal(false);
    const copy = async (text: string): Promise<void> => {
        try {
            await toClipboard(text);
            isDone.value = true;
            setTimeout(() => (isDone.value = false), SHOWN_MS);
        } catch (error) {
            tellError(error);
        }
    };
    return { isDone: isDone.value, copy };
}

/** Browsers offer their clipboard to pages of https and of this machine only; elsewhere the old way still works. */
async function toClipboard(text: string): Promise<void> {
    if (navigator.clipboard !== undefined) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
}
