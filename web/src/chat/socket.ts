/** The line to the server over which conversations live: one for the whole page, however many look at it. */
import { signal } from "@preact/signals";
import { io, type Socket } from "socket.io-client";
import { isKeyRefused } from "../api/client";
import { ApiError } from "../api/errors";
import { key } from "../api/key";
import { type ChatEnd, bare, type Patch, type Session, type TurnEvent } from "./wire";

export interface Notice {
    session_id?: string;
    title?: string;
    detail?: string | null;
    message?: string;
    code?: string;
    status?: "error" | "warning" | "info";
}

/** What a conversation hears. */
export interface Listener {
    chatStart(): void;
    turnStart(turn: TurnEvent): void;
    turnPatch(patch: Patch): void;
    turnEnd(turn: TurnEvent): void;
    chatEnd(end: ChatEnd): void;
    notice(notice: Notice): void;
    /** The line is there, for the first time or again: what was missed has to be fetched. */
    connected(): void;
}

export type Updated = { session_id: string } & Partial<Session>;
interface Ack {
    status: string;
    code?: string;
    message?: string;
}

const PATIENCE_MS = 20_000;
/** A browser's Socket.IO wants some token; a server without keys looks at none. */
const NO_KEY = "none";

export const isConnected = signal(true);

let line: Socket | null = null;
const listeners = new Map<string, Listener>();
const watchers = new Set<(change: Updated) => void>();

function opened(): Socket {
    if (line !== null) return line;
    const base = new URL("./", document.baseURI);
    line = io(base.origin, {
        path: `${base.pathname}socket.io/`,
        transports: ["websocket", "polling"],
        auth: (give) => give({ token: key.value ?? NO_KEY, sdk: "dragoman-console" }),
        reconnectionDelay: 300,
        reconnectionDelayMax: 4_000,
    });
    line.on("connect", () => {
        isConnected.value = true;
        for (const each of listeners.values()) each.connected();
    });
    line.on("disconnect", () => (isConnected.value = false));
    line.on("connect_error", (error) => {
        isConnected.value = false;
        if (error.message === "Unauthorized") isKeyRefused.value = true;
    });
    line.on("chat:start", (told: { session_id: string }) => of(told)?.chatStart());
    line.on("turn:start", (told: TurnEvent) => of(told)?.turnStart(told));
    line.on("turn:patch", (told: Patch) => of(told)?.turnPatch(told));
    line.on("turn:end", (told: TurnEvent) => of(told)?.turnEnd(told));
    line.on("chat:end", (told: ChatEnd) => of(told)?.chatEnd(told));
    line.on("system:notification", (told: Notice) => of(told)?.notice(told));
    line.on("session:updated", (told: Updated) => watchers.forEach((each) => each(told)));
    return line;
}

key.subscribe(() => {
    line?.disconnect();
    line = null;
});

const of = (told: { session_id?: string }): Listener | undefined => listeners.get(bare(told.session_id ?? ""));

/** Hear what happens in a session; what this returns ends it. */
export function listen(session: string, listener: Listener): () => void {
    listeners.set(session, listener);
    const socket = opened();
    if (socket.connected) queueMicrotask(() => listeners.get(session) === listener && listener.connected());
    return () => {
        if (listeners.get(session) !== listener) return;
        listeners.delete(session);
        if (socket.connected) socket.emit("session:unsubscribe", { session_id: session });
    };
}

/** Hear of changes to any session's title, pin, memory or status. */
export function watch(hear: (change: Updated) => void): () => void {
    watchers.add(hear);
    opened();
    return () => void watchers.delete(hear);
}

/** Send an event and wait until the server has taken it.
 *  @throws ApiError when it refuses, or does not answer. */
export async function send<T extends Ack>(event: string, payload: object): Promise<T> {
    let ack: T;
    try {
        ack = (await opened().timeout(PATIENCE_MS).emitWithAck(event, payload)) as T;
    } catch {
        throw new ApiError("");
    }
    if (ack.status === "error") throw new ApiError(ack.message ?? "", { status: 400, code: ack.code ?? null });
    return ack;
}
