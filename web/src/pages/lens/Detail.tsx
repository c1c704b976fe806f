/** The raw events of one moment, by protocol. */
import { useSignal } from "@preact/signals";
import { Bridge } from "../../cards/Bridge";
import { ToolCard } from "../../cards/ToolCard";
import { UiSchema } from "../../cards/UiSchema";
import { Button, IconButton } from "../../components/Button";
import { CopyButton } from "../../components/CopyButton";
import { t } from "../../i18n";
import type { Row } from "../../lens/align";
import { CurlButton } from "../../lens/CurlButton";
import type { Place } from "../../lens/adapter";
import { NAMES } from "../../lens/adapters";
import { curlOf } from "../../lens/curl";
import { type Frame, objectOf, oneLine, type Protocol, textOf } from "../../lens/frames";
import { Raw } from "../../lens/Raw";

/** The number of events shown for a collapsed row. */
const MAX_FRAMES = 12;

interface Props {
    row: Row;
    protocols: readonly Protocol[];
    place: Place;
    onClose: () => void;
}

export function Detail({ row, protocols, place, onClose }: Props) {
    const isPretty = useSignal(true);
    return (
        <section class="lens-detail" aria-label={t(`lens.kind.${row.kind}`)}>
            <header class="row">
                <h2>{t(`lens.kind.${row.kind}`)}</h2>
                <span class="grow soft small lens-text">{oneLine(row.text)}</span>
                {place.hasKey && <span class="soft small lens-hint">{t("lens.key-hint")}</span>}
                <Button isSmall kind="plain" onClick={() => (isPretty.value = !isPretty.value)}>
                    {t(isPretty.value ? "lens.raw" : "lens.pretty")}
                </Button>
                <IconButton icon="close" isSmall label={t("action.close")} onClick={onClose} />
            </header>
            <div class="lens-grid lens-raw-frames" role="group" aria-label={t("lens.raw-events")} tabIndex={0}>
                <p class="lens-fact soft small">{t(`lens.why.${row.kind}`)}</p>
                {protocols.map((protocol) => (
                    <div key={protocol} class={`lens-cell ${protocol}`}>
                        <h3 class="lens-detail-name">{NAMES[protocol]}</h3>
                        {row.cells[protocol].length === 0 && (
                            <p class="soft small">{t("lens.silent", { protocol: NAMES[protocol] })}</p>
                        )}
                        {row.cells[protocol].slice(0, MAX_FRAMES).map((frame, index) => (
                            <RawFrame key={index} frame={frame} place={place} isPretty={isPretty.value} />
                        ))}
                    </div>
                ))}
            </div>
        </section>
    );
}

function RawFrame({ frame, place, isPretty }: { frame: Frame; place: Place; isPretty: boolean }) {
    return (
        <article class="raw-frame">
            <div class="row">
                <span class="chip grow">
                    <b>{frame.id}</b>
                    {frame.name}
                </span>
                <CopyButton text={frame.raw} label={t("lens.copy")} />
                {frame.id !== "" && (
                    <CurlButton command={() => curlOf(frame.protocol, place, frame)} label={t("lens.curl-from")} />
                )}
            </div>
            <Drawn frame={frame} />
            <Raw frame={frame} isPretty={isPretty} />
        </article>
    );
}

/** The rendered user interface of an event that carries one. */
function Drawn({ frame: { name, body } }: { frame: Frame }) {
    if (name === "CUSTOM" && body["name"] === "dragoman.ui_schema") return <UiSchema tree={body["value"]} />;
    const data = objectOf(body["data"]);
    if (data["type"] === "tool_ui") return <ToolCard card={data["content"]} tool={textOf(data["tool_name"])} />;
    if (data["type"] === "tool_bridge") {
        return <Bridge bridge={data["content"]} toolCallId={textOf(data["tool_call_id"])} isLive={false} />;
    }
    return null;
}
