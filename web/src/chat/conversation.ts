/**
 * One conversation, live: its turns as the server has them, kept up with events, and what the reader can do in it.
 *
 * Every turn is a signal of its own, so that a word that arrives draws one turn again and not five thousand. Patches are
 * gathered and folded once per frame.
 */
import { batch, computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import { api } from "../api/client";
import { t } from "../i18n";
import { fold } from "./fold";
import { forgetPictures } from "./pictures";
import { Schemas } from "./schemas";
import { listen, type Listener, type Notice, send, type Updated, watch } from "./socket";
import {
    type Answer,
    bare,
    type ChatEnd,
    messageOf,
    type Part,
    type Patch,
    type SessionDetail,
    type Turn,
    type TurnEvent,
} from "./wire";

/** How long words may wait for a frame. */
const SLOWEST_MS = 120;

export interface Entry {
    readonly id: string;
    readonly turn: Signal<Turn>;
}

interface Growing {
    last: number;
    patches: Patch[];
}

interface Checkpoint {
    checkpoint_id: string;
    turn_id: string;
}

/** First messages of conversations that were begun here, until their turns are known. */
export const begun = new Map<string, readonly Part[]>();

const ENDS = ["max_tokens", "refusal", "max_turns"] as const;

export class Conversation implements Listener {
    readonly detail = signal<SessionDetail | null>(null);
    readonly error = signal<unknown>(null);
    /** Turns of the main loop, oldest first. */
    readonly entries = signal<readonly Entry[]>([]);
    /** Turns of sub-agents, by the call below which they belong. */
    readonly children = signal<ReadonlyMap<string, readonly Entry[]>>(new Map());
    readonly isLoaded = signal(false);
    readonly isRunning = signal(false);
    readonly isStopping = signal(false);
    readonly notices = signal<readonly Notice[]>([]);
    /** What the reader sent and the server has not told back yet. */
    readonly sending = signal<readonly Part[] | null>(null);
    /** Calls that happened while the page looked on: only their wishes are passed on to a host page. */
    readonly liveCalls = new Set<string>();
    /** What this page sent, by the turn that it became: with its pictures, which the server tells in words alone. */
    readonly sent = new Map<string, readonly Part[]>();
    readonly isWaiting: ReadonlySignal<boolean> = computed(
        () => !this.isRunning.value && this.entries.value.some((each) => each.turn.value.status === "paused"),
    );

    readonly schemas: Schemas;
    private readonly byId = new Map<string, Entry>();
    private readonly growing = new Map<string, Growing>();
    private readonly leave: () => void;
    private frame: { drawn: number; late: number } | null = null;
    private told = new Set<string>();
    private loads = 0;
    /** Something was missed, and the server is asked for all turns as they are: once, however many patches show it. */
    private mending: Promise<void> | null = null;
    private ends = 0;

    constructor(readonly id: string) {
        this.schemas = new Schemas(id);
        const unwatch = watch((change) => this.changed(change));
        const unlisten = listen(id, this);
        this.leave = () => {
            unwatch();
            unlisten();
        };
    }

    close(): void {
        this.leave();
        this.unschedule();
        this.loads += 1;
    }

    // --- what the reader does ----------------------------------------------------------------------------------------

    async say(parts: readonly Part[]): Promise<void> {
        this.sending.value = parts;
        this.notices.value = [];
        try {
            await send("chat:send", { session_id: this.id, message: messageOf(parts) });
            this.isRunning.value = true;
        } catch (error) {
            this.sending.value = null;
            throw error;
        }
    }

    async answer(answer: Answer): Promise<void> {
        await send("chat:send", { session_id: this.id, message: "", askuser_answer: answer });
    }

    async stop(): Promise<void> {
        this.isStopping.value = true;
        try {
            await send("chat:stop", { session_id: this.id });
        } finally {
            this.isStopping.value = false;
        }
    }

    /** Say the newest message again: the conversation goes back to before it. */
    async retry(turn: Turn, parts: readonly Part[]): Promise<void> {
        const path = `/api/sessions/${this.id}`;
        const checkpoints = await api.get<Checkpoint[]>(`${path}/checkpoints`);
        const before = checkpoints.find((each) => each.turn_id === turn.turn_id);
        if (before !== undefined) await api.post(`${path}/rewind`, { checkpoint_id: before.checkpoint_id });
        await this.load();
        await this.say(parts);
    }

    async compact(): Promise<void> {
        await send("chat:compact", { session_id: this.id });
    }

    async change(path: string, body: object): Promise<void> {
        await api.patch(`/api/sessions/${this.id}${path}`, body);
        await this.describe();
    }

    async describe(): Promise<void> {
        this.detail.value = await api.get<SessionDetail>(`/api/sessions/${this.id}`);
    }

    // --- what the server says ----------------------------------------------------------------------------------------

    /** First the live events, then what there is already: nothing falls between the two. */
    connected(): void {
        void this.load();
    }

    async load(): Promise<void> {
        const load = ++this.loads;
        try {
            const known = this.describe();
            known.catch(() => undefined);
            const ends = this.ends;
            this.told = new Set();
            const ack = await send<{ status: string; running: boolean }>("session:subscribe", { session_id: this.id });
            const turns = await api.get<Turn[]>(`/api/sessions/${this.id}/messages`);
            await known;
            if (load !== this.loads) return;
            batch(() => {
                // What was told since subscribing is newer than what was fetched.
                const fetched = turns.filter((turn) => !this.told.has(turn.turn_id));
                const kept = new Set(turns.map((turn) => turn.turn_id));
                for (const id of [...this.byId.keys()]) if (!kept.has(id) && !this.told.has(id)) this.byId.delete(id);
                for (const turn of fetched) this.put(turn);
                this.arrange();
                this.remember();
                if (ends === this.ends) this.isRunning.value = ack.running;
                this.isLoaded.value = true;
                this.error.value = null;
            });
            void this.schemas.refresh(this.byId.size);
        } catch (error) {
            if (load === this.loads) this.error.value = error;
        }
    }

    chatStart(): void {
        this.isRunning.value = true;
    }

    turnStart(event: TurnEvent): void {
        this.flush();
        this.told.add(event.turn_id);
        this.growing.set(event.turn_id, { last: event.patch_sequence ?? 0, patches: [] });
        batch(() => {
            if (event.role === "user") this.took(event);
            if (event.status === "streaming") this.isRunning.value = true;
            this.put(event);
            this.arrange();
        });
    }

    turnPatch(patch: Patch): void {
        const growing = this.growing.get(patch.turn_id);
        if (growing === undefined || patch.sequence > growing.last + 1) {
            this.mending ??= this.load().finally(() => (this.mending = null));
            return;
        }
        if (patch.sequence <= growing.last) return;
        growing.last = patch.sequence;
        growing.patches.push(patch);
        if (patch.patch_type === "add_tool_call") this.liveCalls.add(String(patch.data["id"]));
        this.schedule();
    }

    turnEnd(event: TurnEvent): void {
        this.told.add(event.turn_id);
        this.growing.set(event.turn_id, {
            last: event.patch_sequence ?? this.growing.get(event.turn_id)?.last ?? 0,
            patches: [],
        });
        batch(() => {
            this.put(event);
            this.arrange();
        });
    }

    chatEnd(end: ChatEnd): void {
        this.flush();
        this.ends += 1;
        batch(() => {
            this.isRunning.value = false;
            this.isStopping.value = false;
            this.sending.value = null;
        });
        forgetPictures(this);
        void this.schemas.refresh(this.byId.size);
        const why = ENDS.find((each) => each === end.stop_reason || each === end.finish_reason);
        if (why !== undefined) this.notice({ title: t(`chat.end.${why}`), status: "warning" });
        void this.describe().catch(() => undefined);
    }

    notice(notice: Notice): void {
        this.notices.value = [...this.notices.value, notice];
    }

    private remember(): void {
        const parts = begun.get(this.id);
        const first = this.entries.peek().find((each) => each.turn.peek().role === "user");
        if (parts === undefined || first === undefined) return;
        this.sent.set(first.id, parts);
        begun.delete(this.id);
    }

    /** Its title, its pin or its memory changed, here or elsewhere. */
    private changed({ session_id: id, ...told }: Updated): void {
        if (this.detail.value !== null && bare(id) === this.id) this.detail.value = { ...this.detail.value, ...told };
    }

    private took(turn: Turn): void {
        const parts = this.sending.peek();
        if (parts !== null) this.sent.set(turn.turn_id, parts);
        this.sending.value = null;
    }

    // --- turns -------------------------------------------------------------------------------------------------------

    private put(turn: Turn): void {
        const known = this.byId.get(turn.turn_id);
        if (known === undefined) this.byId.set(turn.turn_id, { id: turn.turn_id, turn: signal(turn) });
        else known.turn.value = turn;
    }

    /** Bring the lists in order, if a turn came or went. Their signals change only then. */
    private arrange(): void {
        const roots: Entry[] = [];
        const below = new Map<string, Entry[]>();
        const all = [...this.byId.values()].sort((a, b) => a.turn.peek().sequence - b.turn.peek().sequence);
        for (const entry of all) {
            const parent = entry.turn.peek().parent_fork_tool_call_id;
            if (parent === null) roots.push(entry);
            else below.set(parent, [...(below.get(parent) ?? []), entry]);
        }
        if (!same(this.entries.peek(), roots)) this.entries.value = roots;
        const before = this.children.peek();
        if (below.size !== before.size || [...below].some(([id, list]) => !same(before.get(id) ?? [], list))) {
            this.children.value = below;
        }
    }

    /** With the next frame; soon in any case, because browsers draw none of a page that is covered. */
    private schedule(): void {
        if (this.frame !== null) return;
        const flush = (): void => this.flush();
        this.frame = { drawn: requestAnimationFrame(flush), late: window.setTimeout(flush, SLOWEST_MS) };
    }

    private unschedule(): void {
        if (this.frame === null) return;
        cancelAnimationFrame(this.frame.drawn);
        clearTimeout(this.frame.late);
        this.frame = null;
    }

    private flush(): void {
        this.unschedule();
        batch(() => {
            for (const [id, growing] of this.growing) {
                const entry = this.byId.get(id);
                if (entry === undefined || growing.patches.length === 0) continue;
                entry.turn.value = growing.patches.reduce(fold, entry.turn.peek());
                growing.patches = [];
            }
        });
    }
}

const same = (one: readonly Entry[], other: readonly Entry[]): boolean =>
    one.length === other.length && one.every((entry, index) => entry === other[index]);
