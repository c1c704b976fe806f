/** Copies a curl command. */
import { Button } from "../components/Button";
import { useCopying } from "../components/CopyButton";
import { t } from "../i18n";

interface Props {
    command: () => string;
    label: string;
    /** What it is for, among others with the same name. */
    about?: string;
}

export function CurlButton({ command, label, about }: Props) {
    const { isDone, copy } = useCopying();
    const onClick = (event: Event): void => {
        event.stopPropagation();
        void copy(command());
    };
    return (
        <Button isSmall kind="plain" aria-label={label} aria-description={about} title={label} onClick={onClick}>
            <code>{isDone ? t("action.copied") : "curl"}</code>
        </Button>
    );
}
