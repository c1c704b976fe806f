/**
 * A tool's own user interface (`_meta.ui`): its HTML in a sandboxed frame.
 *
 * The frame loads `card.html`, which this server sends with a policy of its own: scripts may run and draw, but may not
 * make requests. Its origin is opaque, so it cannot reach the console or its storage, and the console's policy stops it
 * from navigating elsewhere. Messages from the frame are ignored.
 */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Button } from "../components/Button";
import { t } from "../i18n";
import { isObject, text } from "./schema";
import "./cards.css";

const DEFAULT_HEIGHT = 200;
const MAX_HEIGHT = 2_000;
const FRAME = "./card.html";

interface Props {
    /** The content of a `tool_ui` block. */
    card: unknown;
    /** The tool's name, for the frame's title. */
    tool: string;
}

export function ToolCard({ card, tool }: Props) {
    if (!isObject(card)) return null;
    const html = text(card["resourceHTML"]);
    if (html !== "") return <Html card={card} html={html} tool={tool} />;
    const link = text(card["resourceUri"]);
    if (/^https?:\/\//.test(link)) return <ExternalLink link={link} tool={tool} />;
    if (Array.isArray(card["columns"]) && Array.isArray(card["rows"])) {
        return <Table columns={card["columns"]} rows={card["rows"]} />;
    }
    return <pre class="tool-card-raw">{JSON.stringify(card, null, 2)}</pre>;
}

function Html({ card, html, tool }: { card: Record<string, unknown>; html: string; tool: string }) {
    const isShown = useSignal(card["target"] !== "preview");
    if (!isShown.value) {
        return (
            <div class="tool-card tool-card-closed">
                <Button isSmall icon="chevron" onClick={() => (isShown.value = true)}>
                    {t("cards.preview", { tool })}
                </Button>
            </div>
        );
    }
    return <Sandbox html={html} height={heightOf(card["height"])} title={t("cards.frame", { tool })} />;
}

function heightOf(value: unknown): number {
    return typeof value === "number" && value > 0 ? Math.min(Math.round(value), MAX_HEIGHT) : DEFAULT_HEIGHT;
}

/** Untrusted HTML in a sandbox. */
export function Sandbox({ html, height, title }: { html: string; height: number; title: string }) {
    const frame = useRef<HTMLIFrameElement>(null);
    useEffect(() => {
        const sendHtml = (event: MessageEvent): void => {
            const inside = frame.current?.contentWindow;
            if (inside && event.source === inside && event.data === "card:ready") inside.postMessage(html, "*");
        };
        addEventListener("message", sendHtml);
        return () => removeEventListener("message", sendHtml);
    }, [html]);
    return (
        <div class="tool-card">
            <iframe
                ref={frame}
                key={html}
                src={FRAME}
                title={title}
                height={height}
                sandbox="allow-scripts"
                referrerpolicy="no-referrer"
                allow=""
                loading="lazy"
            />
        </div>
    );
}

function ExternalLink({ link, tool }: { link: string; tool: string }) {
    return (
        <p class="tool-card tool-card-closed">
            <a href={link} target="_blank" rel="noopener noreferrer">
                {t("cards.elsewhere", { tool })}
            </a>{" "}
            <span class="soft small mono">{link}</span>
        </p>
    );
}

function Table({ columns, rows }: { columns: unknown[]; rows: unknown[] }) {
    const names = columns.map((column) =>
        isObject(column) ? text(column["key"]) || text(column["name"]) : text(column),
    );
    const titles = columns.map((column, index) => (isObject(column) && text(column["title"])) || names[index]);
    const cell = (row: unknown, index: number): unknown =>
        Array.isArray(row) ? row[index] : isObject(row) ? row[names[index] ?? ""] : null;
    return (
        <div class="tool-card tool-card-table">
            <table>
                <thead>
                    <tr>
                        {titles.map((title, index) => (
                            <th key={index} scope="col">
                                {title}
                            </th>
                        ))}
                    </tr>
                </thead>
                <tbody>
                    {rows.slice(0, 500).map((row, at) => (
                        <tr key={at}>
                            {names.map((_, index) => (
                                <td key={index}>{cellText(cell(row, index))}</td>
                            ))}
                        </tr>
                    ))}
                </tbody>
            </table>
        </div>
    );
}

const cellText = (value: unknown): string =>
    typeof value === "string" ? value : value === null || value === undefined ? "" : JSON.stringify(value);
