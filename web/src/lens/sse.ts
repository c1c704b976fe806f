/**
 * Parses server-sent events from a body that arrives in chunks. Pure: no network, no clock.
 * Source: HTML, "Server-sent events", 9.2.6. Lines end with LF only, as this server sends them.
 */

export interface SseFrame {
    /** The frame's lines without the blank line that ends it. */
    readonly raw: string;
    readonly id: string;
    readonly event: string;
    readonly data: string;
}

/** Accepts chunks of text and returns the complete frames. Comments (keep-alives) produce no frame. */
export class SseParser {
    private rest = "";

    feed(text: string): SseFrame[] {
        const parts = (this.rest + text).split("\n\n");
        this.rest = parts.pop() ?? "";
        return parts.map(frameOf).filter((frame) => frame !== null);
    }
}

function frameOf(raw: string): SseFrame | null {
    let id = "";
    let event = "";
    const data: string[] = [];
    for (const line of raw.split("\n")) {
        const colon = line.indexOf(":");
        const name = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
        if (name === "id") id = value;
        else if (name === "event") event = value;
        else if (name === "data") data.push(value);
    }
    return data.length === 0 ? null : { raw, id, event, data: data.join("\n") };
}
