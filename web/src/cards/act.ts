/** Handles button actions in answers. Links and copying are handled by the components themselves. */
import { confirmed } from "../components/Dialog";
import { showMessage, showError } from "../components/Toast";
import { t } from "../i18n";
import { allow, allowed, hostOf, raise } from "./bridge";
import type { Action } from "./schema";

/** Performs the action, or passes it to the host application.
 *  @param say sends a message as the user. */
export async function act(action: Action, say: (text: string) => Promise<void>): Promise<void> {
    if (action.type !== "tool") return sendToHost(action);
    const call = `${action.tool} ${JSON.stringify(action.args)}`;
    // Never automatic: the agent is asked in a message, and the tool still asks for permission where it needs it.
    const request = { title: t("cards.tool"), text: call, yes: t("cards.tool-yes") };
    if (!(await confirmed(request))) return;
    try {
        await say(t("cards.tool-message", { call }));
    } catch (error) {
        showError(error);
    }
}

async function sendToHost(action: Action): Promise<void> {
    const host = hostOf(window);
    if (host === null) return showMessage(t("cards.nobody"));
    if (allowed.value !== host.origin) {
        const request = {
            title: t("cards.allow-title"),
            text: host.origin,
            yes: t("cards.allow", { origin: host.origin }),
        };
        if (!(await confirmed(request))) return;
        allow(host);
    }
    raise(action, host);
}
