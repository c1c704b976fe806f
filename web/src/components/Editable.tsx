import type { ComponentChildren } from "preact";
import { isReadOnly } from "../api/key";
import { t } from "../i18n";

/** Buttons that change something. A key that can only read does not see them, but, where there is room, the reason. */
export function Editable({ children, explains = false }: { children: ComponentChildren; explains?: boolean }) {
    if (!isReadOnly()) return <>{children}</>;
    return explains ? <span class="soft small">{t("key.read-only")}</span> : null;
}
