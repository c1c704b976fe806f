import type { ComponentChildren } from "preact";
import { t } from "../i18n";
import { Button } from "./Button";
import { Icon, type IconName } from "./Icon";
import { errorMessage } from "./Toast";

/** An empty state: what would be shown here, and how to create it. */
export function Empty({ icon, title, children }: { icon: IconName; title: string; children?: ComponentChildren }) {
    return (
        <div class="empty">
            <Icon name={icon} />
            <h2>{title}</h2>
            {children}
        </div>
    );
}

/** An error state for content that could not be fetched. */
export function Failed({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
    return (
        <div role="alert">
            <Empty icon="warning" title={t("state.failed")}>
                <p>{errorMessage(error)}</p>
                {onRetry && (
                    <Button icon="retry" onClick={onRetry}>
                        {t("action.retry")}
                    </Button>
                )}
            </Empty>
        </div>
    );
}
