/** The icons of the pages. */
import type { PAGES } from "../browser/router";
import type { IconName } from "../components/Icon";

export const ICONS: Record<(typeof PAGES)[number], IconName> = {
    conversations: "chat",
    lens: "lens",
    memories: "memory",
    keys: "key",
    schedules: "clock",
    attachments: "attach",
    health: "health",
};
