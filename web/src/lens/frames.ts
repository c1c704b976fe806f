/**
 * The lens's view of a wire event of any protocol. Pure.
 *
 * A frame is one received event. Its moment identifies what happened in the session: frames of different protocols with
 * the same moment share a row.
 */

export type Protocol = "aap" | "ag-ui" | "agentscope" | "blade" | "openai" | "ai-sdk" | "a2a";
export const PROTOCOLS: readonly Protocol[] = ["aap", "ag-ui", "agentscope", "blade", "openai", "ai-sdk", "a2a"];

export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };
export type JsonObject = { readonly [name: string]: Json };

export interface Frame {
    readonly protocol: Protocol;
    /** The event as received. */
    readonly raw: string;
    /** The protocol's own position, which clients send back to resume. */
    readonly id: string;
    /** The protocol's name of the event. */
    readonly name: string;
    readonly body: JsonObject;
    /** Milliseconds since the page was opened. */
    readonly at: number;
}

export type Kind =
    | "start"
    | "user"
    | "thinking"
    | "text"
    | "close"
    | "step"
    | "call"
    | "result"
    | "subagent"
    | "plan"
    | "card"
    | "block"
    | "note"
    | "end";

/** A moment, with its text if it has one. */
export interface Moment {
    readonly key: string;
    readonly kind: Kind;
    readonly text: string;
}

export function moment(kind: Kind, name: string | number = "", text = ""): Moment {
    return { key: name === "" ? kind : `${kind}:${name}`, kind, text };
}

/** A call without the session's ID for it: the n-th call of a tool in its run. */
export const called = (tool: string, count: number): string => `#${tool}#${count}`;

/** A value for each protocol. */
export function perProtocol<Value>(make: (protocol: Protocol) => Value): Record<Protocol, Value> {
    return Object.fromEntries(PROTOCOLS.map((each) => [each, make(each)])) as Record<Protocol, Value>;
}

export function objectOf(value: Json | undefined): JsonObject {
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as JsonObject) : {};
}

export function textOf(value: Json | undefined): string {
    return typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value);
}

export function parsed(text: string): JsonObject {
    try {
        return objectOf(JSON.parse(text) as Json);
    } catch {
        return {};
    }
}

/** The text shown beside an event's name, on one line. */
export function oneLine(text: string): string {
    const line = text.replace(/\s+/g, " ").trim();
    return line.length > 120 ? `${line.slice(0, 119)}…` : line;
}

/** Counts chunks of text by loop and kind, so that the n-th chunk has the same name in every protocol. */
export class Pieces {
    private readonly counts = new Map<string, number>();

    next(kind: "text" | "thinking", loop: string, text: string): Moment {
        const name = `${kind}:${loop}`;
        const count = (this.counts.get(name) ?? 0) + 1;
        this.counts.set(name, count);
        return moment(kind, `${loop}:${count}`, text);
    }

    /** The chunk that comes next, for the event that opens its block. */
    upcoming(kind: "text" | "thinking", loop: string): Moment {
        return moment(kind, `${loop}:${(this.counts.get(`${kind}:${loop}`) ?? 0) + 1}`);
    }

    /** The end of the block with the newest chunk. */
    closed(kind: "text" | "thinking", loop: string): Moment {
        return moment("close", `${kind}:${loop}:${this.counts.get(`${kind}:${loop}`) ?? 0}`);
    }
}

/** Numbers moments that have no ID of their own. */
export class Ordinals {
    private readonly counts = new Map<Kind, number>();

    next(kind: Kind, text = ""): Moment {
        const count = (this.counts.get(kind) ?? 0) + 1;
        this.counts.set(kind, count);
        return moment(kind, count, text);
    }
}
