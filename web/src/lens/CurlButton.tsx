/** Copies a curl command. */
import { Button } from "../components/Button";
import { useCopying } from "../components/CopyButton";
import { t } from "../i18n";

export function CurlButton({ command, label }: { command: () => string; label: string }) {
    const { isDone, copy } = useCopying();
    const onClick = (event: Event): void => {
        event.stopPropagation();
        void copy(command());
    };
    return (
        <Button isSmall kind="plain" aria-label={label} title={label} onClick={onClick}>
            <code>{isDone ? t("action.copied") : "curl"}</code>
        </Button>
    );
}
