/** The pages of the navigation, with their icons. */
import { isAdmin } from "../api/key";
import { PAGES } from "../browser/router";
import type { IconName } from "../components/Icon";

export const ICONS: Record<(typeof PAGES)[number], IconName> = {
    conversations: "chat",
    lens: "lens",
    memories: "memory",
    keys: "key",
    schedules: "clock",
    attachments: "attach",
    health: "health",
    audit: "list",
};

/** The pages that the caller may use. */
export const offeredPages = (): readonly (typeof PAGES)[number][] =>
    PAGES.filter((each) => each !== "audit" || isAdmin());
