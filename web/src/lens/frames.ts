/**
 * What the lens knows of a wire event, whichever protocol it came over. Pure.
 *
 * A frame is one event as it came. Its moment is the fact in the session that it tells of: frames of different
 * protocols that tell of the same fact have the same moment, and stand in the same row.
 */

export type Protocol = "aap" | "ag-ui" | "agentscope" | "blade";
export const PROTOCOLS: readonly Protocol[] = ["aap", "ag-ui", "agentscope", "blade"];

export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };
export type JsonObject = { readonly [name: string]: Json };

export interface Frame {
    readonly protocol: Protocol;
    /** As it came over the line. */
    readonly raw: string;
    /** The position that the protocol itself gives it, as clients send it back. */
    readonly id: string;
    /** What the protocol calls it. */
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

/** A fact. `words` is what it says, if it says something. */
export interface Moment {
    readonly key: string;
    readonly kind: Kind;
    readonly words: string;
}

export function moment(kind: Kind, name: string | number = "", words = ""): Moment {
    return { key: name === "" ? kind : `${kind}:${name}`, kind, words };
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

/** Counts pieces of words by loop and kind, so that the n-th piece has the same name in every protocol. */
export class Pieces {
    private readonly counts = new Map<string, number>();

    next(kind: "text" | "thinking", loop: string, words: string): Moment {
        const name = `${kind}:${loop}`;
        const count = (this.counts.get(name) ?? 0) + 1;
        this.counts.set(name, count);
        return moment(kind, `${loop}:${count}`, words);
    }

    /** The piece that comes next, for what opens the block of it. */
    coming(kind: "text" | "thinking", loop: string): Moment {
        return moment(kind, `${loop}:${(this.counts.get(`${kind}:${loop}`) ?? 0) + 1}`);
    }

    /** The end of the block that holds the newest piece. */
    closed(kind: "text" | "thinking", loop: string): Moment {
        return moment("close", `${kind}:${loop}:${this.counts.get(`${kind}:${loop}`) ?? 0}`);
    }
}

/** Counts what has no name of its own. */
export class Ordinals {
    private readonly counts = new Map<Kind, number>();

    next(kind: Kind, words = ""): Moment {
        const count = (this.counts.get(kind) ?? 0) + 1;
        this.counts.set(kind, count);
        return moment(kind, count, words);
    }
}
