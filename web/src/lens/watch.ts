/**
 * One session through the eyes of four protocols: opens their streams, and keeps what came over each.
 *
 * AG-UI's log tells a thread whole and goes on live; it is the lens's list of runs. The other three are asked for the
 * run that is looked at, by the ids that they themselves give it.
 */
import { type Signal, signal } from "@preact/signals";
import { api, ask } from "../api/client";
import { key } from "../api/key";
import { aapFrame, aapTurn } from "./aap";
import { agentscopeFrame, agentscopeResponse, isAgentscopeEnd } from "./agentscope";
import { aguiAsked, aguiFrame, aguiMessages, isAguiEnd } from "./agui";
import type { Columns } from "./align";
import { bladeRun, bladeTurnFrame } from "./blade";
import { PATHS, type Place } from "./curl";
import { follow, type State } from "./follow";
import { type Frame, type JsonObject, type Protocol, PROTOCOLS, textOf } from "./frames";
import { BladeSocket } from "./socket";
import { type SseFrame, SseParser } from "./sse";

export interface Run {
    /** What the user asked, as far as it has words. */
    readonly asked: string;
    readonly at: number;
    readonly isOver: boolean;
}

export interface Line {
    readonly state: State;
    readonly error: unknown;
    readonly bytes: number;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const SETTLE_MS = 60;
const DRAW_MS = 60;

type Lines = Readonly<Record<Protocol, Line>>;
const SILENT: Line = { state: "opening", error: null, bytes: 0 };

export class Watch {
    readonly runs = signal<readonly Run[]>([]);
    /** The run that is looked at; the newest one when nobody chose. */
    readonly chosen = signal<number | null>(null);
    readonly columns = signal<Columns>(empty());
    readonly lines = signal<Lines>({ aap: SILENT, "ag-ui": SILENT, agentscope: SILENT, blade: SILENT });
    readonly place: Signal<Place>;

    private readonly leaving = new AbortController();
    private looking = new AbortController();
    private readonly socket: BladeSocket;
    /** A thread's log, cut where its runs begin. */
    private readonly split: Frame[][] = [];
    private bladeNow: Frame[] = [];
    private came = empty();
    private opened = -1;
    private settling: ReturnType<typeof setTimeout> | null = null;
    private drawing: ReturnType<typeof setTimeout> | null = null;

    constructor(
        readonly session: string,
        readonly agent: string,
    ) {
        this.place = signal(this.placed(null, null));
        this.socket = new BladeSocket({
            session,
            onFrame: (frame) => this.takeBlade(frame),
            onBytes: (count) => this.count("blade", count),
            onState: (state, error) => this.note("blade", state, error),
        });
        void follow({
            next: () => ({ path: PATHS["ag-ui"](this.place.value), headers: seen(this.split.at(-1)?.at(-1)) }),
            signal: this.leaving.signal,
            onFrame: (frame) => this.takeAgui(frame),
            onBytes: (count) => this.count("ag-ui", count),
            onState: (state, error) => this.note("ag-ui", state, error),
            isOver: () => false,
        });
        this.settle();
    }

    /** Look at a run; null follows the newest. */
    choose(index: number | null): void {
        this.chosen.value = index;
        this.opened = -1;
        this.settle();
    }

    /** Say something through one of the protocols. All four will tell of it. */
    async say(protocol: Protocol, words: string): Promise<void> {
        this.chosen.value = null;
        if (protocol === "blade") return this.socket.say(words);
        const { path, body, headers } = saying(protocol, this.place.value, words);
        const response = await ask("POST", path, { body, headers });
        const reader = response.body?.getReader();
        const first = (await reader?.read())?.value;
        void reader?.cancel();
        const refused = new SseParser().feed(new TextDecoder().decode(first)).map((sse) => aguiFrame(sse, 0))[0];
        if (refused?.name === "RUN_ERROR") throw new Error(textOf(refused.body["message"]));
    }

    close(): void {
        this.leaving.abort();
        this.looking.abort();
        this.socket.close();
        if (this.settling !== null) clearTimeout(this.settling);
        if (this.drawing !== null) clearTimeout(this.drawing);
    }

    // --- what comes ---

    private takeAgui(sse: SseFrame): void {
        const frame = aguiFrame(sse, performance.now());
        const run = this.split.at(-1);
        if (frame.name === "RUN_STARTED" || run === undefined) this.split.push([frame]);
        else run.push(frame);
        if (frame.name === "RUN_STARTED" || isAguiEnd(frame)) this.settle();
        this.draw();
    }

    private takeBlade(frame: Frame): void {
        const run = bladeRun(frame);
        const now = this.bladeNow.map(bladeRun).find((id) => id !== null) ?? null;
        if (run !== null && now !== null && run !== now) this.bladeNow = [];
        this.bladeNow.push(frame);
        this.draw();
    }

    // --- the run that is looked at ---

    private settle(): void {
        if (this.settling !== null) clearTimeout(this.settling);
        this.settling = setTimeout(() => void this.look(), SETTLE_MS);
    }

    private async look(): Promise<void> {
        this.runs.value = this.split.map((run) => ({
            asked: aguiAsked(run),
            at: Number(run[0]?.body["timestamp"] ?? 0),
            isOver: run.some(isAguiEnd),
        }));
        const newest = this.split.length - 1;
        const index = Math.min(this.chosen.value ?? newest, newest);
        if (index < 0 || index === this.opened) return;
        this.opened = index;
        this.looking.abort();
        this.looking = new AbortController();
        const { signal } = this.looking;
        this.came = empty();
        this.place.value = this.placed(null, null);
        if (index < newest) {
            const turns = await this.history();
            if (signal.aborted) return;
            const run = this.runOf(index, turns);
            this.place.value = this.placed(run, `response_${run}`);
            const told = turns.filter((turn) => textOf(turn["chat_run_id"]) === `chat_${run}`);
            this.came.blade = told.map((turn) => bladeTurnFrame(turn, performance.now()));
        }
        this.draw();
        void this.followRun("aap", signal);
        void this.followRun("agentscope", signal);
    }

    private followRun(protocol: "aap" | "agentscope", signal: AbortSignal): Promise<void> {
        const frames = this.came[protocol];
        const add = (sse: SseFrame): void => {
            const at = performance.now();
            frames.push(protocol === "aap" ? aapFrame(sse, at) : agentscopeFrame(sse, at));
            if (frames.length === 1) this.place.value = this.known();
            this.draw();
        };
        return follow({
            next: () => ({ path: PATHS[protocol](this.place.value), headers: seen(frames.at(-1), protocol) }),
            signal,
            onFrame: add,
            onBytes: (count) => this.count(protocol, count),
            onState: (state, error) => this.note(protocol, state, error),
            isOver: () => {
                const last = frames.at(-1);
                return last !== undefined && (last.name === "turn_stop" || isAgentscopeEnd(last));
            },
        });
    }

    /** All turns as Blade keeps them: they tell which run made which message. */
    private history(): Promise<readonly JsonObject[]> {
        const path = `/api/sessions/sess_${this.session}/messages`;
        return api.get<readonly JsonObject[]>(path).catch(() => []);
    }

    private runOf(index: number, turns: readonly JsonObject[]): string {
        const run = this.split[index] ?? [];
        const named = textOf(run[0]?.body["runId"]);
        const messages = new Set(aguiMessages(run));
        const turn = turns.find((each) => messages.has(textOf(each["turn_id"]).replace(/^turn_/, "")));
        const id = textOf(turn?.["chat_run_id"]).replace(/^chat_/, "");
        return UUID.test(id) ? id : named;
    }

    private known(): Place {
        const { turn, response } = this.place.value;
        return this.placed(turn ?? aapTurn(this.came.aap), response ?? agentscopeResponse(this.came.agentscope));
    }

    private placed(turn: string | null, response: string | null): Place {
        const server = new URL("./", document.baseURI).href.replace(/\/$/, "");
        return { server, hasKey: key.value !== null, agent: this.agent, session: this.session, turn, response };
    }

    // --- what is shown ---

    private draw(): void {
        this.drawing ??= setTimeout(() => {
            this.drawing = null;
            const isNewest = this.opened === this.split.length - 1;
            this.columns.value = {
                aap: [...this.came.aap],
                "ag-ui": [...(this.split[this.opened] ?? [])],
                agentscope: [...this.came.agentscope],
                blade: isNewest ? [...this.bladeNow] : this.came.blade,
            };
        }, DRAW_MS);
    }

    private count(protocol: Protocol, bytes: number): void {
        const line = this.lines.peek()[protocol];
        this.lines.value = { ...this.lines.peek(), [protocol]: { ...line, bytes: line.bytes + bytes } };
    }

    private note(protocol: Protocol, state: State, error: unknown): void {
        const line = this.lines.peek()[protocol];
        this.lines.value = { ...this.lines.peek(), [protocol]: { ...line, state, error } };
    }
}

interface Saying {
    path: string;
    body: unknown;
    headers: Record<string, string>;
}

/** The request that says something through a protocol. */
export function saying(protocol: Exclude<Protocol, "blade">, place: Place, words: string): Saying {
    switch (protocol) {
        case "aap":
            return {
                path: `/aap/v3/sessions/${place.session}/turns`,
                body: { stream: "delta", messages: [{ role: "user", content: words }] },
                headers: {},
            };
        case "ag-ui":
            return {
                path: `/ag-ui/${encodeURIComponent(place.agent)}`,
                body: {
                    protocolVersion: "1.0",
                    threadId: place.session,
                    runId: uuid(),
                    messages: [{ id: uuid(), role: "user", content: words }],
                    tools: [],
                    context: [],
                    forwardedProps: {},
                },
                headers: { "x-run-on-disconnect": "continue" },
            };
        case "agentscope":
            return {
                path: "/process",
                body: {
                    session_id: place.session,
                    input: [{ role: "user", content: [{ type: "text", text: words }] }],
                },
                headers: {},
            };
    }
}

/** `crypto.randomUUID` is there for https and this machine only. */
function uuid(): string {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
    bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
    const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/** The header that goes on behind a frame. */
function seen(last: Frame | undefined, protocol: Protocol = "ag-ui"): Record<string, string> {
    if (last !== undefined) return { "last-event-id": last.id };
    return protocol === "aap" ? { "last-event-id": "0" } : {};
}

function empty(): Record<Protocol, Frame[]> {
    return Object.fromEntries(PROTOCOLS.map((each) => [each, []])) as unknown as Record<Protocol, Frame[]>;
}
