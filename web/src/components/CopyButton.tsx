import { useSignal } from "@preact/signals";
import { t } from "../i18n";
import { IconButton } from "./Button";
import { showError } from "./Toast";

const SHOWN_MS = 1_500;

/** Copies a text and briefly confirms it. */
export function CopyButton({ text, label, about }: { text: string; label?: string; about?: string }) {
    const { isDone, copy } = useCopying();
    return (
        <IconButton
            icon={isDone ? "check" : "copy"}
            label={isDone ? t("action.copied") : (label ?? t("action.copy"))}
            about={about}
            isSmall
            onClick={() => void copy(text)}
        />
    );
}

/** Shared by copy buttons: `isDone` is true for a moment after copying. */
export function useCopying() {
    const isDone = useSignal(false);
    const copy = async (text: string): Promise<void> => {
        try {
            await toClipboard(text);
            isDone.value = true;
            setTimeout(() => (isDone.value = false), SHOWN_MS);
        } catch (error) {
            showError(error);
        }
    };
    return { isDone: isDone.value, copy };
}

/** The clipboard API is available on https and localhost only, and may be denied; the old command still works. */
async function toClipboard(text: string): Promise<void> {
    const isDone = await navigator.clipboard?.writeText(text).then(
        () => true,
        () => false,
    );
    if (isDone) return;
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
}
