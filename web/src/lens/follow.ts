/** Reads a stream of server-sent events to its end, over as many connections as it takes. */
import { ask } from "../api/client";
import { ApiError } from "../api/errors";
import { type SseFrame, SseParser } from "./sse";

export type State = "opening" | "open" | "ended" | "failed";

export interface Following {
    /** The path and the headers of the next request: they say where the stream goes on. */
    readonly next: () => { path: string; headers: Readonly<Record<string, string>> };
    readonly signal: AbortSignal;
    readonly onFrame: (frame: SseFrame) => void;
    readonly onBytes: (count: number) => void;
    readonly onState: (state: State, error: unknown) => void;
    /** Whether what came was all there is. */
    readonly isOver: () => boolean;
}

const FIRST_WAIT_MS = 400;
const LONGEST_WAIT_MS = 8_000;

export async function follow(following: Following): Promise<void> {
    const { signal, onState } = following;
    let wait = FIRST_WAIT_MS;
    while (!signal.aborted) {
        onState("opening", null);
        try {
            if (await read(following)) wait = FIRST_WAIT_MS;
            if (following.isOver() || signal.aborted) {
                onState("ended", null);
                return;
            }
        } catch (error) {
            if (signal.aborted) return;
            if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) {
                onState("failed", error);
                return;
            }
        }
        await new Promise((resolve) => setTimeout(resolve, wait));
        wait = Math.min(wait * 2, LONGEST_WAIT_MS);
    }
}

/** One connection; whether it brought anything. */
async function read({ next, signal, onFrame, onBytes, onState, isOver }: Following): Promise<boolean> {
    const { path, headers } = next();
    const response = await ask("GET", path, { signal, headers: { accept: "text/event-stream", ...headers } });
    const reader = response.body?.getReader();
    if (response.status === 204 || reader === undefined) return false;
    onState("open", null);
    const parser = new SseParser();
    const decoder = new TextDecoder();
    let hasCome = false;
    for (;;) {
        const { value, done } = await reader.read();
        if (done || signal.aborted) return hasCome;
        onBytes(value.length);
        for (const frame of parser.feed(decoder.decode(value, { stream: true }))) {
            hasCome = true;
            onFrame(frame);
        }
        if (isOver()) {
            void reader.cancel();
            return hasCome;
        }
    }
}
