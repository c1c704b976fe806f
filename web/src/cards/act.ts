/** What happens when somebody presses a button in an answer. Links and copying need nobody, and are done where they stand. */
import { confirmed } from "../components/Dialog";
import { tell, tellError } from "../components/Toast";
import { t } from "../i18n";
import { allow, allowed, hostOf, raise } from "./bridge";
import type { Action } from "./schema";

/** Do it, or let the application around the console do it.
 *  @param say sends a message of the user's. */
export async function act(action: Action, say: (words: string) => Promise<void>): Promise<void> {
    if (action.type !== "tool") return tellHost(action);
    const call = `${action.tool} ${JSON.stringify(action.args)}`;
    // Never by itself: the agent is asked for it in words, and its tool asks again where it needs permission.
    const asked = { title: t("cards.tool"), text: call, yes: t("cards.tool-yes") };
    if (!(await confirmed(asked))) return;
    try {
        await say(t("cards.tool-words", { call }));
    } catch (error) {
        tellError(error);
    }
}

async function tellHost(action: Action): Promise<void> {
    const host = hostOf(window);
    if (host === null) return tell(t("cards.nobody"));
    if (allowed.value !== host.origin) {
        const asked = {
            title: t("cards.allow-title"),
            text: host.origin,
            yes: t("cards.allow", { origin: host.origin }),
        };
        if (!(await confirmed(asked))) return;
        allow(host);
    }
    raise(action, host);
}
