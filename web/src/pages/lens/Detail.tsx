/** One fact, as it came over every line: below each column stand the events themselves. */
import { useSignal } from "@preact/signals";
import { Bridge } from "../../cards/Bridge";
import { ToolCard } from "../../cards/ToolCard";
import { UiSchema } from "../../cards/UiSchema";
import { Button, IconButton } from "../../components/Button";
import { CopyButton } from "../../components/CopyButton";
import { t } from "../../i18n";
import type { Row } from "../../lens/align";
import { CurlButton } from "../../lens/CurlButton";
import { curlOf, type Place } from "../../lens/curl";
import { type Frame, objectOf, PROTOCOLS, textOf } from "../../lens/frames";
import { gist, NAMES } from "../../lens/names";
import { Raw } from "../../lens/Raw";

/** Of a folded row the first events are shown: who wants all of them opens it. */
const SHOWN = 12;

export function Detail({ row, place, onClose }: { row: Row; place: Place; onClose: () => void }) {
    const isPretty = useSignal(true);
    return (
        <section class="lens-detail" aria-label={t(`lens.kind.${row.kind}`)}>
            <header class="row">
                <h2>{t(`lens.kind.${row.kind}`)}</h2>
                <span class="grow soft small lens-words">{gist(row.words)}</span>
                {place.hasKey && <span class="soft small lens-hint">{t("lens.key-hint")}</span>}
                <Button isSmall kind="plain" onClick={() => (isPretty.value = !isPretty.value)}>
                    {t(isPretty.value ? "lens.raw" : "lens.pretty")}
                </Button>
                <IconButton icon="close" isSmall label={t("action.close")} onClick={onClose} />
            </header>
            <div class="lens-grid lens-told" role="group" aria-label={t("lens.told")} tabIndex={0}>
                <p class="lens-fact soft small">{t(`lens.why.${row.kind}`)}</p>
                {PROTOCOLS.map((protocol) => (
                    <div key={protocol} class={`lens-cell ${protocol}`}>
                        <h3 class="lens-detail-name">{NAMES[protocol]}</h3>
                        {row.cells[protocol].length === 0 && (
                            <p class="soft small">{t("lens.silent", { protocol: NAMES[protocol] })}</p>
                        )}
                        {row.cells[protocol].slice(0, SHOWN).map((frame, index) => (
                            <Told key={index} frame={frame} place={place} isPretty={isPretty.value} />
                        ))}
                    </div>
                ))}
            </div>
        </section>
    );
}

function Told({ frame, place, isPretty }: { frame: Frame; place: Place; isPretty: boolean }) {
    return (
        <article class="told">
            <div class="row">
                <span class="chip grow">
                    <b>{frame.id}</b>
                    {frame.name}
                </span>
                <CopyButton text={frame.raw} label={t("lens.copy")} />
                {frame.id !== "" && (
                    <CurlButton line={() => curlOf(frame.protocol, place, frame)} label={t("lens.curl-from")} />
                )}
            </div>
            <Drawn frame={frame} />
            <Raw frame={frame} isPretty={isPretty} />
        </article>
    );
}

/** What the event looks like to a person, where it brings an interface along. */
function Drawn({ frame: { name, body } }: { frame: Frame }) {
    if (name === "CUSTOM" && body["name"] === "dragoman.ui_schema") return <UiSchema tree={body["value"]} />;
    const data = objectOf(body["data"]);
    if (data["type"] === "tool_ui") return <ToolCard card={data["content"]} tool={textOf(data["tool_name"])} />;
    if (data["type"] === "tool_bridge") {
        return <Bridge bridge={data["content"]} toolCallId={textOf(data["tool_call_id"])} isLive={false} />;
    }
    return null;
}
