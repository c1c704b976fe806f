/** Reads a stream of server-sent events to its end and reconnects as needed. */
import { ask } from "../api/client";
import { ApiError } from "../api/errors";
import { type SseFrame, SseParser } from "./sse";

export type State = "opening" | "open" | "ended" | "failed";

export interface FollowOptions {
    /** The path and headers of the next request, with the position to resume from. */
    readonly next: () => { path: string; headers: Readonly<Record<string, string>> };
    readonly signal: AbortSignal;
    readonly onFrame: (frame: SseFrame) => void;
    readonly onBytes: (count: number) => void;
    readonly onState: (state: State, error: unknown) => void;
    /** Whether everything has been received. */
    readonly isOver: () => boolean;
}

const FIRST_RETRY_DELAY_MS = 400;
const MAX_RETRY_DELAY_MS = 1_500;

export async function follow(options: FollowOptions): Promise<void> {
    const { signal, onState } = options;
    let delay = FIRST_RETRY_DELAY_MS;
    while (!signal.aborted) {
        onState("opening", null);
        try {
            if (await read(options)) delay = FIRST_RETRY_DELAY_MS;
            if (options.isOver() || signal.aborted) {
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
        await new Promise((resolve) => setTimeout(resolve, delay));
        delay = Math.min(delay * 2, MAX_RETRY_DELAY_MS);
    }
}

/** Reads one connection. Returns whether it received anything. */
async function read({ next, signal, onFrame, onBytes, onState, isOver }: FollowOptions): Promise<boolean> {
    const { path, headers } = next();
    const response = await ask("GET", path, { signal, headers: { accept: "text/event-stream", ...headers } });
    const reader = response.body?.getReader();
    if (response.status === 204 || reader === undefined) return false;
    onState("open", null);
    const parser = new SseParser();
    const decoder = new TextDecoder();
    let hasFrames = false;
    for (;;) {
        const { value, done } = await reader.read();
        if (done || signal.aborted) return hasFrames;
        onBytes(value.length);
        for (const frame of parser.feed(decoder.decode(value, { stream: true }))) {
            hasFrames = true;
            onFrame(frame);
        }
        if (isOver()) {
            void reader.cancel();
            return hasFrames;
        }
    }
}
