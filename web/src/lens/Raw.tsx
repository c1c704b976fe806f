/** A frame as text: as it came, or its JSON with room to breathe. */
import type { ComponentChildren } from "preact";
import type { Frame, JsonObject } from "./frames";

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
/** Longer frames are shown as plain text: thousands of coloured words would make the page slow. */
const COLOURED = 20_000;

export function Raw({ frame, isPretty }: { frame: Frame; isPretty: boolean }) {
    if (isPretty) return <Json value={frame.body} />;
    return (
        <pre class="raw" tabIndex={0}>
            {frame.raw}
        </pre>
    );
}

/** An object with its names and values in colours. */
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
    for (const found of json.matchAll(TOKEN)) {
        const [whole, text, colon, word] = found;
        if (found.index > last) parts.push(json.slice(last, found.index));
        const kind =
            text === undefined ? (word === undefined ? "number" : "word") : colon === undefined ? "text" : "name";
        parts.push(<span class={`json-${kind}`}>{text ?? whole}</span>);
        if (colon !== undefined) parts.push(colon);
        last = found.index + whole.length;
    }
    parts.push(json.slice(last));
    return parts;
}
