/** What the lens has to know about a protocol: an adapter, at the end of the module that is named like the protocol. */
import { api } from "../api/client";
import { type Frame, type Json, type JsonObject, type Moment, objectOf } from "./frames";
import type { SseFrame } from "./sse";

/** What is looked at, in the words of all protocols. */
export interface Place {
    /** The server's address, without a trailing slash. */
    readonly server: string;
    readonly hasKey: boolean;
    readonly agent: string;
    readonly session: string;
    /** The run's ID, as AAP names its turns. */
    readonly turn: string | null;
    /** The ID of AgentScope's response. */
    readonly response: string | null;
    /** The run's own ID, once it is known. */
    readonly run: string | null;
}

export type Headers = Readonly<Record<string, string>>;

export interface StreamRequest {
    readonly path: string;
    readonly headers: Headers;
}

export interface MessageRequest {
    readonly path: string;
    readonly body: unknown;
    readonly headers: Headers;
}

/** A stream of server-sent events. */
export interface Stream {
    /** The request for the events after a position; null is the beginning. */
    resume(place: Place, after: string | null): StreamRequest;
    /** The position just before a frame. */
    before(frame: Frame): string;
    frame(sse: SseFrame, at: number): Frame;
    /** Whether nothing follows in the run. */
    isEnd(frame: Frame): boolean;
}

/** A stream of one run. `needsRun`: its address contains the run's own ID. */
export interface RunStream extends Stream {
    readonly needsRun: boolean;
}

export interface History {
    readonly path: string;
    /** The body of a POST; a GET has none. */
    readonly body?: unknown;
    /** @throws ApiError when the server does not serve the protocol. */
    items(signal: AbortSignal): Promise<readonly JsonObject[]>;
}

export interface Adapter {
    readonly name: string;
    /** The path and transport, as they are shown. */
    readonly transport: string;
    moments(frames: readonly Frame[]): Moment[];
    history(place: Place): History;
}

/** A protocol that sends messages in requests of their own. */
export interface HttpAdapter extends Adapter {
    /** The request that sends a message. */
    message(place: Place, text: string): MessageRequest;
    readonly stream: Stream;
}

export interface RunAdapter extends HttpAdapter {
    readonly stream: RunStream;
}

export const objectsOf = (value: Json | undefined): readonly JsonObject[] =>
    Array.isArray(value) ? value.map(objectOf) : [];

/** A history in one JSON answer. */
export const jsonHistory = (path: string, itemsOf: (answer: Json) => Json | undefined): History => ({
    path,
    items: async (signal) => objectsOf(itemsOf(await api.get<Json>(path, {}, signal))),
});

/** The header that resumes a stream of server-sent events. */
export const lastEventId = (position: string | null): Headers =>
    position === null ? {} : { "Last-Event-ID": position };

/** The position before a frame, of a protocol that numbers its events. */
export const numberBefore = (frame: Frame): string => String(Number(frame.id) - 1);

/** A UUID as OpenAI's API names runs and sessions. */
export const bareId = (uuid: string): string => uuid.replaceAll("-", "");

/** `crypto.randomUUID` is available on https and localhost only. */
export function uuid(): string {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
    bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
    const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
