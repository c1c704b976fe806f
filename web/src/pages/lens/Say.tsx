/** Says something through one protocol, so that one can watch the others tell of it. */
import { useSignal } from "@preact/signals";
import { Button } from "../../components/Button";
import { tellError } from "../../components/Toast";
import { t } from "../../i18n";
import { CurlButton } from "../../lens/CurlButton";
import { curlRequest } from "../../lens/curl";
import { type Protocol, PROTOCOLS } from "../../lens/frames";
import { NAMES } from "../../lens/names";
import { saying, type Watch } from "../../lens/watch";

export function Say({ watch }: { watch: Watch }) {
    const words = useSignal("");
    const protocol = useSignal<Protocol>("aap");
    const isSending = useSignal(false);
    const send = async (event: Event): Promise<void> => {
        event.preventDefault();
        const said = words.value.trim();
        if (said === "" || isSending.value) return;
        isSending.value = true;
        try {
            await watch.say(protocol.value, said);
            words.value = "";
        } catch (error) {
            tellError(error);
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
                value={words.value}
                onInput={(event) => (words.value = event.currentTarget.value)}
            />
            <Button kind="primary" icon="send" type="submit" disabled={words.value.trim() === "" || isSending.value}>
                {t("lens.say-send")}
            </Button>
            {chosen !== "blade" && (
                <CurlButton
                    label={t("lens.say-curl")}
                    line={() => {
                        const { path, body } = saying(chosen, watch.place.value, words.value || "Hello!");
                        return curlRequest(watch.place.value, "POST", path, body);
                    }}
                />
            )}
        </form>
    );
}
