/**
 * Follows one session over the chosen protocols: opens their streams and collects their frames.
 *
 * AG-UI replays the whole thread and continues live, so it provides the list of runs, chosen or not. The others are asked
 * for the selected run, by the IDs that they assign to it.
 */
import { type Signal, signal } from "@preact/signals";
import { api, ask } from "../api/client";
import { key } from "../api/key";
import { aapTurn } from "./aap";
import type { Place } from "./adapter";
import { HTTP_ADAPTERS, isRunProtocol, RUN_ADAPTERS, type RunProtocol } from "./adapters";
import { agentscopeResponse } from "./agentscope";
import { userMessage, aguiFrame, aguiMessages, isAguiEnd } from "./agui";
import type { Columns } from "./align";
import { bladeRun, bladeTurnFrame } from "./blade";
import { follow, type State } from "./follow";
import { type Frame, type JsonObject, perProtocol, type Protocol, textOf } from "./frames";
import { BladeSocket } from "./socket";
import { type SseFrame, SseParser } from "./sse";

export interface Run {
    /** The user's message, if it has text. */
    readonly message: string;
    readonly at: number;
    readonly isOver: boolean;
}

export interface StreamState {
    readonly state: State;
    readonly error: unknown;
    readonly bytes: number;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const SETTLE_MS = 60;
const DRAW_MS = 60;
const RUN_RETRY_MS = 250;
const RUN_RETRIES = 20;

type StreamStates = Readonly<Record<Protocol, StreamState>>;
const NOT_STARTED: StreamState = { state: "opening", error: null, bytes: 0 };

export class SessionMonitor {
    readonly runs = signal<readonly Run[]>([]);
    /** The selected run; null follows the newest one. */
    readonly chosen = signal<number | null>(null);
    readonly columns = signal<Columns>(empty());
    readonly streams = signal<StreamStates>(perProtocol(() => NOT_STARTED));
    readonly place: Signal<Place>;

    private readonly abort = new AbortController();
    private runAbort = new AbortController();
    private readonly socket: BladeSocket;
    /** The thread's log, split into runs. */
    private readonly split: Frame[][] = [];
    private bladeNow: Frame[] = [];
    private received = empty();
    private opened = -1;
    private reloadTimer: ReturnType<typeof setTimeout> | null = null;
    private drawTimer: ReturnType<typeof setTimeout> | null = null;

    constructor(
        readonly session: string,
        readonly agent: string,
        private protocols: readonly Protocol[],
    ) {
        this.place = signal(this.placeOf({}));
        this.socket = new BladeSocket({
            session,
            onFrame: (frame) => this.receiveBlade(frame),
            onBytes: (addBytes) => this.addBytes("blade", addBytes),
            onState: (state, error) => this.setState("blade", state, error),
        });
        void follow({
            next: () => HTTP_ADAPTERS["ag-ui"].stream.resume(this.place.value, this.split.at(-1)?.at(-1)?.id ?? null),
            signal: this.abort.signal,
            onFrame: (frame) => this.receiveAgui(frame),
            onBytes: (addBytes) => this.addBytes("ag-ui", addBytes),
            onState: (state, error) => this.setState("ag-ui", state, error),
            isOver: () => false,
        });
        this.scheduleReload();
    }

    /** Selects a run; null follows the newest one. */
    choose(index: number | null): void {
        this.chosen.value = index;
        this.opened = -1;
        this.scheduleReload();
    }

    /** Shows other protocols: follows the selected run over them, from its start. */
    show(protocols: readonly Protocol[]): void {
        if (protocols.join() === this.protocols.join()) return;
        this.protocols = protocols;
        this.opened = -1;
        this.scheduleReload();
    }

    /** Sends a message over one of the protocols. All of them will show it. */
    async say(protocol: Protocol, text: string): Promise<void> {
        this.chosen.value = null;
        if (protocol === "blade") return this.socket.say(text);
        const { path, body, headers } = HTTP_ADAPTERS[protocol].message(this.place.value, text);
        const response = await ask("POST", path, { body, headers });
        const reader = response.body?.getReader();
        const first = (await reader?.read())?.value;
        void reader?.cancel();
        const refused = new SseParser().feed(new TextDecoder().decode(first)).map((sse) => aguiFrame(sse, 0))[0];
        if (refused?.name === "RUN_ERROR") throw new Error(textOf(refused.body["message"]));
    }

    close(): void {
        this.abort.abort();
        this.runAbort.abort();
        this.socket.close();
        if (this.reloadTimer !== null) clearTimeout(this.reloadTimer);
        if (this.drawTimer !== null) clearTimeout(this.drawTimer);
    }

    // --- received frames ---

    private receiveAgui(sse: SseFrame): void {
        const frame = aguiFrame(sse, performance.now());
        const run = this.split.at(-1);
        if (frame.name === "RUN_STARTED" || run === undefined) this.split.push([frame]);
        else run.push(frame);
        if (frame.name === "RUN_STARTED" || isAguiEnd(frame)) this.scheduleReload();
        this.draw();
    }

    private receiveBlade(frame: Frame): void {
        const run = bladeRun(frame);
        const now = this.bladeNow.map(bladeRun).find((id) => id !== null) ?? null;
        if (run !== null && now !== null && run !== now) this.bladeNow = [];
        this.bladeNow.push(frame);
        this.draw();
    }

    // --- the selected run ---

    private scheduleReload(): void {
        if (this.reloadTimer !== null) clearTimeout(this.reloadTimer);
        this.reloadTimer = setTimeout(() => void this.reload(), SETTLE_MS);
    }

    private async reload(): Promise<void> {
        this.runs.value = this.split.map((run) => ({
            message: userMessage(run),
            at: Number(run[0]?.body["timestamp"] ?? 0),
            isOver: run.some(isAguiEnd),
        }));
        const newest = this.split.length - 1;
        const index = Math.min(this.chosen.value ?? newest, newest);
        if (index < 0 || index === this.opened) return;
        this.opened = index;
        this.runAbort.abort();
        this.runAbort = new AbortController();
        const { signal } = this.runAbort;
        this.received = empty();
        this.place.value = this.placeOf({});
        if (index < newest) {
            const turns = await this.history();
            if (signal.aborted) return;
            const run = this.runOf(index, turns) ?? textOf(this.split[index]?.[0]?.body["runId"]);
            this.place.value = this.placeOf({ turn: run, response: `response_${run}`, run });
            const turnsOfRun = turns.filter((turn) => textOf(turn["chat_run_id"]) === `chat_${run}`);
            this.received.blade = turnsOfRun.map((turn) => bladeTurnFrame(turn, performance.now()));
        }
        this.draw();
        const shown = this.protocols.filter(isRunProtocol);
        for (const each of shown) if (!RUN_ADAPTERS[each].stream.needsRun) void this.followRun(each, signal);
        const waiting = shown.filter((each) => RUN_ADAPTERS[each].stream.needsRun);
        if (waiting.length === 0) return;
        if (this.place.value.run === null) await this.findRun(index, signal);
        if (signal.aborted) return;
        for (const each of waiting) {
            if (this.place.value.run === null) this.setState(each, "failed", null);
            else void this.followRun(each, signal);
        }
    }

    /** Finds the ID of a run that has just started. */
    private async findRun(index: number, signal: AbortSignal): Promise<void> {
        for (let attempt = 0; attempt < RUN_RETRIES && !signal.aborted; attempt += 1) {
            const run = this.runOf(index, await this.history());
            if (signal.aborted) return;
            if (run !== null) {
                this.place.value = { ...this.place.value, run };
                return;
            }
            await new Promise((resolve) => setTimeout(resolve, RUN_RETRY_MS));
        }
    }

    private followRun(protocol: RunProtocol, signal: AbortSignal): Promise<void> {
        const frames = this.received[protocol];
        const { stream } = RUN_ADAPTERS[protocol];
        const add = (sse: SseFrame): void => {
            if (sse.data === "[DONE]") return;
            frames.push(stream.frame(sse, performance.now()));
            if (frames.length === 1) this.place.value = this.known();
            this.draw();
        };
        return follow({
            next: () => stream.resume(this.place.value, frames.at(-1)?.id ?? null),
            signal,
            onFrame: add,
            onBytes: (addBytes) => this.addBytes(protocol, addBytes),
            onState: (state, error) => this.setState(protocol, state, error),
            isOver: () => {
                const last = frames.at(-1);
                return last !== undefined && stream.isEnd(last);
            },
        });
    }

    /** All turns from Blade's history, which links messages to runs. */
    private history(): Promise<readonly JsonObject[]> {
        const path = `/api/sessions/sess_${this.session}/messages`;
        return api.get<readonly JsonObject[]>(path).catch(() => []);
    }

    /** The ID of a run, by a turn of Blade's history with one of its messages; null if there is none yet. */
    private runOf(index: number, turns: readonly JsonObject[]): string | null {
        const messages = new Set(aguiMessages(this.split[index] ?? []));
        const turn = turns.find((each) => messages.has(textOf(each["turn_id"]).replace(/^turn_/, "")));
        const id = textOf(turn?.["chat_run_id"]).replace(/^chat_/, "");
        return UUID.test(id) ? id : null;
    }

    private known(): Place {
        const { turn, response, run } = this.place.value;
        return this.placeOf({
            turn: turn ?? aapTurn(this.received.aap),
            response: response ?? agentscopeResponse(this.received.agentscope),
            run,
        });
    }

    private placeOf({ turn = null, response = null, run = null }: Partial<Place>): Place {
        const server = new URL("./", document.baseURI).href.replace(/\/$/, "");
        return { server, hasKey: key.value !== null, agent: this.agent, session: this.session, turn, response, run };
    }

    // --- display ---

    private draw(): void {
        this.drawTimer ??= setTimeout(() => {
            this.drawTimer = null;
            const isNewest = this.opened === this.split.length - 1;
            this.columns.value = {
                ...perProtocol((each) => [...this.received[each]]),
                "ag-ui": [...(this.split[this.opened] ?? [])],
                blade: isNewest ? [...this.bladeNow] : this.received.blade,
            };
        }, DRAW_MS);
    }

    private addBytes(protocol: Protocol, bytes: number): void {
        const stream = this.streams.peek()[protocol];
        this.streams.value = { ...this.streams.peek(), [protocol]: { ...stream, bytes: stream.bytes + bytes } };
    }

    private setState(protocol: Protocol, state: State, error: unknown): void {
        const stream = this.streams.peek()[protocol];
        this.streams.value = { ...this.streams.peek(), [protocol]: { ...stream, state, error } };
    }
}

function empty(): Record<Protocol, Frame[]> {
    return perProtocol(() => []);
}
