/** A frame as raw text or as formatted JSON. */
import type { ComponentChildren } from "preact";
import type { Frame, JsonObject } from "./frames";

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
/** Longer frames are shown without highlighting: thousands of colored words would slow down the page. */
const COLOURED = 20_000;

export function Raw({ frame, isPretty }: { frame: Frame; isPretty: boolean }) {
    if (isPretty) return <Json value={frame.body} />;
    return (
        <pre class="raw" tabIndex={0}>
            {frame.raw}
        </pre>
    );
}

/** Formatted JSON with syntax highlighting. */
export function Json({ value }: { value: JsonObject }) {
    const json = JSON.stringify(value, null, 2);
    return (
        <pre class="raw" tabIndex={0}>
            {json.length > COLOURED ? json : coloured(json)}
        </pre>
    );
}

function coloured(json: string): ComponentChildren[] {
    const parts: ComponentChildren[] = [];
    let last = 0;
    for (const match of json.matchAll(TOKEN)) {
        const [whole, text, colon, word] = match;
        if (match.index > last) parts.push(json.slice(last, match.index));
        const kind =
            text === undefined ? (word === undefined ? "number" : "word") : colon === undefined ? "text" : "name";
        parts.push(<span class={`json-${kind}`}>{text ?? whole}</span>);
        if (colon !== undefined) parts.push(colon);
        last = match.index + whole.length;
    }
    parts.push(json.slice(last));
    return parts;
}
