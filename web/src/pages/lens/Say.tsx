/** Sends a message over one protocol, so that the others can be watched. */
import { useSignal } from "@preact/signals";
import { Button } from "../../components/Button";
import { showError } from "../../components/Toast";
import { t } from "../../i18n";
import { CurlButton } from "../../lens/CurlButton";
import { HTTP_ADAPTERS, NAMES } from "../../lens/adapters";
import { curlRequest } from "../../lens/curl";
import { type Protocol, PROTOCOLS } from "../../lens/frames";
import type { SessionMonitor } from "../../lens/monitor";

export function Say({ monitor }: { monitor: SessionMonitor }) {
    const draft = useSignal("");
    const protocol = useSignal<Protocol>("aap");
    const isSending = useSignal(false);
    const send = async (event: Event): Promise<void> => {
        event.preventDefault();
        const text = draft.value.trim();
        if (text === "" || isSending.value) return;
        isSending.value = true;
        try {
            await monitor.say(protocol.value, text);
            draft.value = "";
        } catch (error) {
            showError(error);
        }
        isSending.value = false;
    };
    const chosen = protocol.value;
    return (
        <form class="lens-say" aria-label={t("lens.say")} onSubmit={(event) => void send(event)}>
            <span class="small soft lens-say-as" aria-hidden="true">
                {t("lens.say-as")}
            </span>
            <select
                aria-label={t("lens.say-as")}
                class={`input ${chosen}`}
                onChange={(event) => (protocol.value = event.currentTarget.value as Protocol)}
            >
                {PROTOCOLS.map((each) => (
                    <option key={each} value={each} selected={each === chosen}>
                        {NAMES[each]}
                    </option>
                ))}
            </select>
            <input
                class="input grow"
                name="words"
                aria-label={t("lens.say")}
                placeholder={t("lens.say-placeholder")}
                autocomplete="off"
                value={draft.value}
                onInput={(event) => (draft.value = event.currentTarget.value)}
            />
            <Button kind="primary" icon="send" type="submit" disabled={draft.value.trim() === "" || isSending.value}>
                {t("lens.say-send")}
            </Button>
            {chosen !== "blade" && (
                <CurlButton
                    label={t("lens.say-curl")}
                    command={() => {
                        const { path, body } = HTTP_ADAPTERS[chosen].message(
                            monitor.place.value,
                            draft.value || "Hello!",
                        );
                        return curlRequest(monitor.place.value, "POST", path, body);
                    }}
                />
            )}
        </form>
    );
}
