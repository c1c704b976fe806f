/** A tool's request to the host application (`_meta.bridge`): shown, and sent to the embedding page. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Button } from "../components/Button";
import { CopyButton } from "../components/CopyButton";
import { Icon } from "../components/Icon";
import { t } from "../i18n";
import { allow, allowed, type BridgeAction, hostOf, offer, offerLive, wasOffered } from "./bridge";
import { isObject, text } from "./schema";
import "./cards.css";

interface Props {
    /** The content of a `tool_bridge` block. */
    bridge: unknown;
    toolCallId: string;
    /** Whether the call has just happened. Calls from loaded history are shown but not sent. */
    isLive: boolean;
}

export function Bridge({ bridge, toolCallId, isLive }: Props) {
    const name = isObject(bridge) ? text(bridge["action"]) : "";
    const payload = isObject(bridge) ? bridge["payload"] : null;
    const action: BridgeAction = { action: name, payload, toolCallId };
    const isSent = useSignal(wasOffered(toolCallId));
    const host = hostOf(window);
    useEffect(() => {
        if (isLive && name !== "" && offerLive(action)) isSent.value = true;
    }, [toolCallId]);
    if (name === "") return null;
    const send = (): void => {
        if (host === null) return;
        allow(host);
        isSent.value = offer(action, host);
    };
    const payloadText = JSON.stringify(payload, null, 2);
    return (
        <details class="bridge">
            <summary>
                <Icon name="fork" />
                <span class="grow">
                    <code>{name}</code>
                </span>
                <span class={isSent.value ? "badge good" : "badge"}>
                    {t(isSent.value ? "cards.sent" : host === null ? "cards.no-host" : "cards.not-sent")}
                </span>
            </summary>
            <p class="soft small">{t("cards.bridge")}</p>
            <pre>{payloadText}</pre>
            <div class="row">
                <CopyButton text={payloadText} />
                {host !== null && (
                    <Button isSmall icon="send" onClick={send}>
                        {t(allowed.value === host.origin ? "cards.send" : "cards.allow", { origin: host.origin })}
                    </Button>
                )}
            </div>
        </details>
    );
}
