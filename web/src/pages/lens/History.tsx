/** The conversation as each protocol's history returns it. */
import { useSignal } from "@preact/signals";
import { useLoaded } from "../../api/loading";
import { Loading } from "../../components/Spinner";
import { errorMessage } from "../../components/Toast";
import { count, t } from "../../i18n";
import { CurlButton } from "../../lens/CurlButton";
import type { Place } from "../../lens/adapter";
import { ADAPTERS, NAMES } from "../../lens/adapters";
import { curlRequest } from "../../lens/curl";
import { type JsonObject, oneLine, type Protocol } from "../../lens/frames";
import { kindOf, plainText } from "../../lens/history";
import { Json } from "../../lens/Raw";

/** The number of items shown of a long history. */
const MAX_ITEMS = 300;

interface Props {
    place: Place;
    protocols: readonly Protocol[];
    /** The number of runs that have ended. */
    ended: number;
}

export function History({ place, protocols, ended }: Props) {
    return (
        <div class="lens-histories">
            {protocols.map((protocol) => (
                <Column key={protocol} protocol={protocol} place={place} ended={ended} />
            ))}
        </div>
    );
}

/** Reloaded whenever a run ends. */
function Column({ protocol, place, ended }: { protocol: Protocol; place: Place; ended: number }) {
    const { path, body, items: load } = ADAPTERS[protocol].history(place);
    const { state } = useLoaded(load, [place, ended]);
    const { value, error } = state.value;
    const items = value ?? [];
    const command = (): string => curlRequest(place, body === undefined ? "GET" : "POST", path, body ?? null);
    return (
        <section class={`lens-history ${protocol}`} aria-label={NAMES[protocol]}>
            <header class="lens-column">
                <div class="row">
                    <h2 class="lens-name grow">{NAMES[protocol]}</h2>
                    {value !== null && <CurlButton command={command} label={t("lens.curl-history")} />}
                </div>
                <p class="soft small">{t(`lens.history.${protocol}`, { count: count(items.length) })}</p>
            </header>
            <div class="lens-items" role="group" aria-label={NAMES[protocol]} tabIndex={0}>
                {value === null && error === null && <Loading />}
                {error !== null && <p class="note">{errorMessage(error)}</p>}
                {items.slice(-MAX_ITEMS).map((item, index) => (
                    <Item key={index} item={item} />
                ))}
            </div>
        </section>
    );
}

function Item({ item }: { item: JsonObject }) {
    const isOpen = useSignal(false);
    return (
        <details class="lens-item" onToggle={(event) => (isOpen.value = event.currentTarget.open)}>
            <summary>
                <span class="chip">
                    <b>{kindOf(item)}</b>
                </span>
                <span class="small">{oneLine(plainText(item))}</span>
            </summary>
            {isOpen.value && <Json value={item} />}
        </details>
    );
}
