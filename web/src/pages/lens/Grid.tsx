/**
 * The rows of the lens. Only visible rows are rendered: a row's height follows from its content, so that positions are
 * known without rendering.
 */
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { ApiError } from "../../api/errors";
import { count, size, t } from "../../i18n";
import type { Row } from "../../lens/align";
import { ADAPTERS, NAMES } from "../../lens/adapters";
import { CurlButton } from "../../lens/CurlButton";
import { HISTORY } from "../../lens/blade";
import { curlOf } from "../../lens/curl";
import { type Frame, objectOf, oneLine, type Protocol, textOf } from "../../lens/frames";
import type { SessionMonitor } from "../../lens/monitor";

const LINE = 24;
const PADDING = 13;
const AHEAD_PX = 500;
/** The width below which one protocol is shown; the same as in the style sheet. */
const NARROW = matchMedia("(max-width: 960px)");

interface Props {
    monitor: SessionMonitor;
    protocols: readonly Protocol[];
    rows: readonly Row[];
    /** The protocol shown on narrow screens. */
    narrow: Protocol;
    onNarrow: (protocol: Protocol) => void;
    selected: string | null;
    onSelect: (key: string | null) => void;
    onOpen: (key: string) => void;
}

export function Grid({ monitor, protocols, rows, narrow, onNarrow, selected, onSelect, onOpen }: Props) {
    const scroll = useRef<HTMLDivElement>(null);
    const view = useSignal({ top: 0, height: 800, isNarrow: NARROW.matches });
    const isAtEnd = useRef(true);
    const tops = useMemo(
        () => places(rows, view.value.isNarrow ? [narrow] : protocols),
        [rows, view.value.isNarrow, narrow, protocols.join()],
    );
    const height = tops.at(-1) ?? 0;

    const updateViewport = (): void => {
        const area = scroll.current;
        if (area === null) return;
        isAtEnd.current = area.scrollTop + area.clientHeight >= area.scrollHeight - LINE;
        view.value = { top: area.scrollTop, height: area.clientHeight, isNarrow: NARROW.matches };
    };
    useEffect(() => {
        const observer = new ResizeObserver(updateViewport);
        if (scroll.current !== null) observer.observe(scroll.current);
        return () => observer.disconnect();
    }, []);
    const isLive = monitor.runs.value.at(-1)?.isOver === false;
    useLayoutEffect(() => {
        const area = scroll.current;
        if (area !== null && isLive && isAtEnd.current && selected === null) area.scrollTop = area.scrollHeight;
    }, [height, isLive]);

    const startedAt = useMemo(() => startOf(rows), [rows]);
    const { top, height: seen } = view.value;
    const first = Math.max(
        0,
        tops.findIndex((each, at) => (tops[at + 1] ?? each) > top - AHEAD_PX),
    );
    let last = first;
    while (last < rows.length && (tops[last] ?? 0) < top + seen + AHEAD_PX) last += 1;

    const move = (to: number): void => {
        const at = Math.max(0, Math.min(rows.length - 1, to));
        const row = rows[at];
        const area = scroll.current;
        if (row === undefined || area === null) return;
        onSelect(row.key);
        const [from, until] = [tops[at] ?? 0, tops[at + 1] ?? 0];
        if (from < area.scrollTop) area.scrollTop = from;
        else if (until > area.scrollTop + area.clientHeight) area.scrollTop = until - area.clientHeight;
    };
    const onKeyDown = (event: KeyboardEvent): void => {
        const at = rows.findIndex((each) => each.key === selected);
        const steps: Record<string, number> = {
            ArrowDown: at + 1,
            ArrowUp: at < 0 ? rows.length - 1 : at - 1,
            Home: 0,
            End: rows.length - 1,
            PageDown: at + 10,
            PageUp: at - 10,
        };
        const step = steps[event.key];
        const row = rows[at];
        if (step !== undefined) move(step);
        else if (event.key === "Enter" && row !== undefined && row.count > 1) onOpen(row.key);
        else if (event.key === "Escape") onSelect(null);
        else return;
        event.preventDefault();
    };

    return (
        <div class="lens-table">
            <Tabs protocols={protocols} narrow={narrow} onNarrow={onNarrow} />
            <div class="lens-grid lens-columns">
                <div class="lens-fact">{t("lens.fact")}</div>
                {protocols.map((protocol) => (
                    <Column key={protocol} monitor={monitor} protocol={protocol} />
                ))}
            </div>
            <div
                ref={scroll}
                class="lens-scroll"
                role="listbox"
                aria-label={t("lens.rows")}
                aria-activedescendant={selected === null ? undefined : rowId(selected)}
                tabIndex={0}
                onScroll={updateViewport}
                onKeyDown={onKeyDown}
            >
                <div class="lens-rows" role="presentation" style={{ height: `${height}px` }}>
                    {rows.slice(first, last).map((row, offset) => (
                        <RowLine
                            key={row.key}
                            row={row}
                            protocols={protocols}
                            top={tops[first + offset] ?? 0}
                            startedAt={startedAt}
                            isSelected={row.key === selected}
                            onSelect={() => onSelect(row.key === selected ? null : row.key)}
                            onOpen={() => onOpen(row.key)}
                        />
                    ))}
                </div>
            </div>
        </div>
    );
}

/** The start of each row, and the end of the last one. */
function places(rows: readonly Row[], shown: readonly Protocol[]): number[] {
    let top = 0;
    const tops = rows.map((row) => {
        const here = top;
        top += PADDING + LINE * Math.max(factLines(row), ...shown.map((each) => lines(row, each)));
        return here;
    });
    return [...tops, top];
}

/** Streamed text is shown beside the event's name, any other text below it. */
const factLines = (row: Row): number => (row.text === "" || row.kind === "text" || row.kind === "thinking" ? 1 : 2);
const lines = (row: Row, protocol: Protocol): number => (row.count > 1 ? 1 : row.cells[protocol].length);
const rowId = (key: string): string => `row-${key.replace(/[^\w-]/g, "_")}`;

function Tabs({ protocols, narrow, onNarrow }: Pick<Props, "protocols" | "narrow" | "onNarrow">) {
    return (
        <div class="lens-tabs" role="group" aria-label={t("lens.protocol")}>
            {protocols.map((protocol) => (
                <button
                    key={protocol}
                    type="button"
                    class={`lens-tab ${protocol}`}
                    aria-pressed={narrow === protocol}
                    onClick={() => onNarrow(protocol)}
                >
                    {NAMES[protocol]}
                </button>
            ))}
        </div>
    );
}

function Column({ monitor, protocol }: { monitor: SessionMonitor; protocol: Protocol }) {
    const { state, error, bytes } = monitor.streams.value[protocol];
    const frames = monitor.columns.value[protocol];
    const isHistory = protocol === "blade" && frames.some((frame) => frame.name === HISTORY);
    const why = error instanceof ApiError ? error.message : isHistory ? t("lens.history") : undefined;
    return (
        <div class={`lens-column ${protocol}`} data-state={state} data-protocol={protocol}>
            <div class="row">
                <span class="lens-name grow">{NAMES[protocol]}</span>
                <CurlButton
                    command={() => curlOf(protocol, monitor.place.value, null)}
                    label={t("lens.curl")}
                    about={NAMES[protocol]}
                />
            </div>
            <p class="lens-for">{t(`lens.for.${protocol}`)}</p>
            <code class="lens-carrier">{ADAPTERS[protocol].transport}</code>
            <div class="lens-figures">
                <span class="lens-state" title={why}>
                    {t(`lens.state.${state}`)}
                </span>
                <span>{t("lens.frames", { count: count(frames.length), size: size(bytes) })}</span>
            </div>
        </div>
    );
}

interface LineProps {
    row: Row;
    protocols: readonly Protocol[];
    top: number;
    startedAt: number;
    isSelected: boolean;
    onSelect: () => void;
    onOpen: () => void;
}

function RowLine({ row, protocols, top, startedAt, isSelected, onSelect, onOpen }: LineProps) {
    const at = Number(row.cells["ag-ui"].find((frame) => "timestamp" in frame.body)?.body["timestamp"] ?? Number.NaN);
    const fact = t(`lens.kind.${row.kind}`);
    return (
        <div
            id={rowId(row.key)}
            class={`lens-grid lens-row kind-${row.kind}`}
            role="option"
            aria-selected={isSelected}
            data-moment={row.key}
            style={{ transform: `translateY(${top}px)` }}
            onClick={onSelect}
            onDblClick={row.count > 1 ? onOpen : undefined}
        >
            <div class="lens-fact">
                <span class="lens-kind">{fact}</span>
                {Number.isFinite(at) && startedAt > 0 && (
                    <span class="lens-time">+{Math.max(0, at - startedAt)} ms</span>
                )}
                {row.text !== "" && <span class="lens-text">{oneLine(row.text)}</span>}
            </div>
            {protocols.map((protocol) => (
                <div
                    key={protocol}
                    class={`lens-cell ${protocol}`}
                    title={row.cells[protocol].length > 0 ? undefined : t("lens.silent", { protocol: NAMES[protocol] })}
                >
                    <Cell frames={row.cells[protocol]} isGroup={row.count > 1} />
                </div>
            ))}
        </div>
    );
}

function Cell({ frames, isGroup }: { frames: readonly Frame[]; isGroup: boolean }) {
    const [first] = frames;
    if (first === undefined) return <span class="lens-none">{t("lens.none")}</span>;
    if (isGroup) {
        const name = frames.find((frame) => PIECE.test(frame.name))?.name ?? first.name;
        return (
            <span class="chip">
                <b>{first.id}</b>
                <em>× {frames.length}</em>
                {name}
            </span>
        );
    }
    return (
        <>
            {frames.map((frame, index) => (
                <span class="chip" key={index}>
                    <b>{frame.id}</b>
                    {frame.name}
                    <q>{oneLine(frameText(frame))}</q>
                </span>
            ))}
        </>
    );
}

const PIECE = /delta|CONTENT|content in_progress|add_content/;

/** The most informative text of a frame. */
function frameText({ body }: Frame): string {
    const data = objectOf(body["data"]);
    const item = objectOf(body["item"]);
    for (const name of [
        "delta",
        "text_delta",
        "text",
        "toolCallName",
        "toolName",
        "tool_name",
        "name",
        "result",
        "stopReason",
    ]) {
        const found = [body[name], data[name], item[name]].find((each) => typeof each === "string");
        if (found !== undefined) return textOf(found);
    }
    const content = body["content"] ?? data["content"];
    if (typeof content === "string") return content;
    return textOf(item["type"] ?? (body["object"] === "message" ? body["type"] : body["role"]));
}

function startOf(rows: readonly Row[]): number {
    for (const row of rows) {
        const found = row.cells["ag-ui"].find((frame) => "timestamp" in frame.body);
        if (found !== undefined) return Number(found.body["timestamp"]);
    }
    return 0;
}
