/** The Socket.IO connection for conversations: one for the whole page. */
import { signal } from "@preact/signals";
import { io, type Socket } from "socket.io-client";
import { isKeyRefused } from "../api/client";
import { ApiError } from "../api/errors";
import { credential, key } from "../api/key";
import { renewLogin } from "../api/login";
import { type ChatEnd, bare, type Patch, type Session, type TurnEvent } from "./wire";

export interface Notice {
    session_id?: string;
    title?: string;
    detail?: string | null;
    message?: string;
    code?: string;
    status?: "error" | "warning" | "info";
}

/** Receives the events of one conversation. */
export interface Listener {
    chatStart(): void;
    turnStart(turn: TurnEvent): void;
    turnPatch(patch: Patch): void;
    turnEnd(turn: TurnEvent): void;
    chatEnd(end: ChatEnd): void;
    notice(notice: Notice): void;
    /** Connected, for the first time or again: missed events have to be fetched. */
    connected(): void;
}

/** `reload`: the conversation was rewound, or continues on another branch. */
export type Updated = { session_id: string; reload?: boolean; deleted?: boolean } & Partial<Session>;
interface Watcher {
    changed(change: Updated): void;
    /** As a listener's. */
    connected(): void;
}

interface Ack {
    status: string;
    code?: string;
    message?: string;
}

const ACK_TIMEOUT_MS = 20_000;
/** Short, because a person waits. The library adds up to a half at random, so that windows do not all come at once. */
const MAX_RECONNECTION_DELAY_MS = 1_000;
/** Socket.IO in a browser requires a token; a server without authentication ignores it. */
const NO_KEY = "none";

export const isConnected = signal(true);

let connection: Socket | null = null;
/** What the connection was opened with. */
let sent: string | null = null;
/** By session. Two while a page gives way to another one for the same session. */
const listeners = new Map<string, Set<Listener>>();
const watchers = new Set<Watcher>();

function connect(): Socket {
    if (connection !== null) return connection;
    const base = new URL("./", document.baseURI);
    connection = io(base.origin, {
        path: `${base.pathname}socket.io/`,
        transports: ["websocket", "polling"],
        auth: (resolve) => {
            sent = credential();
            resolve({ token: sent ?? NO_KEY, sdk: "dragoman-console" });
        },
        reconnectionDelay: 300,
        reconnectionDelayMax: MAX_RECONNECTION_DELAY_MS,
    });
    connection.on("connect", () => {
        isConnected.value = true;
        for (const each of [...listeners.values()].flatMap((those) => [...those])) each.connected();
        for (const each of watchers) each.connected();
    });
    connection.on("disconnect", (reason) => {
        isConnected.value = false;
        // The server closes it when the key is revoked or the token has expired. The library does not try again then.
        if (reason === "io server disconnect") void reconnect(connection);
    });
    connection.on("connect_error", (error) => {
        isConnected.value = false;
        if (error.message === "Unauthorized") void reconnect(connection);
    });
    connection.on("chat:start", (event: { session_id: string }) => of(event).forEach((each) => each.chatStart()));
    connection.on("turn:start", (event: TurnEvent) => of(event).forEach((each) => each.turnStart(event)));
    connection.on("turn:patch", (event: Patch) => of(event).forEach((each) => each.turnPatch(event)));
    connection.on("turn:end", (event: TurnEvent) => of(event).forEach((each) => each.turnEnd(event)));
    connection.on("chat:end", (event: ChatEnd) => of(event).forEach((each) => each.chatEnd(event)));
    connection.on("system:notification", (event: Notice) => of(event).forEach((each) => each.notice(event)));
    connection.on("session:updated", (event: Updated) => watchers.forEach((each) => each.changed(event)));
    return connection;
}

/** Connects again with a newer token, or asks for another key if there is none. */
async function reconnect(closed: Socket | null): Promise<void> {
    if (!(await renewLogin(sent))) isKeyRefused.value = true;
    else if (connection === closed) closed?.connect();
}

key.subscribe(() => {
    connection?.disconnect();
    connection = null;
});

addEventListener("online", () => void (connection?.connected === false && connection.disconnect().connect()));

const NOBODY: ReadonlySet<Listener> = new Set();

const of = (event: { session_id?: string }): ReadonlySet<Listener> =>
    listeners.get(bare(event.session_id ?? "")) ?? NOBODY;

/** Subscribes to a session's events. Returns a function that unsubscribes. */
export function listen(session: string, listener: Listener): () => void {
    const those = listeners.get(session) ?? new Set();
    listeners.set(session, those.add(listener));
    const socket = connect();
    if (socket.connected) queueMicrotask(() => those.has(listener) && listener.connected());
    return () => {
        if (!those.delete(listener) || those.size > 0) return;
        listeners.delete(session);
        if (socket.connected) socket.emit("session:unsubscribe", { session_id: session });
    };
}

/** Subscribes to changes of any session's title, pin, memory setting or status. `connected` as of a listener, except that
 *  it is not called for a connection that is open already. */
export function watchSessions(changed: (change: Updated) => void, connected: () => void = () => undefined): () => void {
    const watcher = { changed, connected };
    watchers.add(watcher);
    connect();
    return () => void watchers.delete(watcher);
}

/** Sends an event and waits for the acknowledgement.
 *  @throws ApiError when the server rejects it or does not answer. */
export async function send<T extends Ack>(event: string, payload: object): Promise<T> {
    let ack: T;
    try {
        ack = (await connect().timeout(ACK_TIMEOUT_MS).emitWithAck(event, payload)) as T;
    } catch {
        throw new ApiError("");
    }
    if (ack.status === "error") throw new ApiError(ack.message ?? "", { status: 400, code: ack.code ?? null });
    return ack;
}
