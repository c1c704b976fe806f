/** Copies a command line that reads the same again. */
import { useSignal } from "@preact/signals";
import { Button } from "../components/Button";
import { toClipboard } from "../components/CopyButton";
import { tellError } from "../components/Toast";
import { t } from "../i18n";

const SHOWN_MS = 1_500;

export function CurlButton({ line, label }: { line: () => string; label: string }) {
    const isDone = useSignal(false);
    const copy = async (event: Event): Promise<void> => {
        event.stopPropagation();
        try {
            await toClipboard(line());
            isDone.value = true;
            setTimeout(() => (isDone.value = false), SHOWN_MS);
        } catch (error) {
            tellError(error);
        }
    };
    return (
        <Button isSmall kind="plain" aria-label={label} title={label} onClick={(event) => void copy(event)}>
            <code>{isDone.value ? t("action.copied") : "curl"}</code>
        </Button>
    );
}
