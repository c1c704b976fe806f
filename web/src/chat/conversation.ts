/**
 * One live conversation: its turns, kept up to date by events, and the user's actions.
 *
 * Every turn is a signal of its own, so that a new word renders one turn instead of all of them. Patches are collected
 * and applied once per frame.
 */
import { batch, computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import { api } from "../api/client";
import { isReadOnly } from "../api/key";
import { Latest } from "../api/latest";
import { fold } from "./fold";
import { Pictures } from "./pictures";
import { Schemas } from "./schemas";
import { listen, type Listener, type Notice, send, type Updated, watchSessions } from "./socket";
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
import { Versions } from "./versions";

/** The longest time that patches wait for an animation frame. */
const MAX_FRAME_DELAY_MS = 120;

export interface Entry {
    readonly id: string;
    readonly turn: Signal<Turn>;
}

interface Growing {
    last: number;
    patches: Patch[];
}

export class Conversation implements Listener {
    readonly detail = signal<SessionDetail | null>(null);
    readonly error = signal<unknown>(null);
    /** Turns of the main loop, oldest first. */
    readonly entries = signal<readonly Entry[]>([]);
    /** Turns of sub-agents, by the tool call that started them. */
    readonly children = signal<ReadonlyMap<string, readonly Entry[]>>(new Map());
    readonly isLoaded = signal(false);
    /** Whether the user may answer and change things. Viewers may not, but who is one is known only with the details. */
    readonly isWritable = computed(() => this.detail.value?.viewer_role !== "viewer" && !isReadOnly());
    readonly isRunning = signal(false);
    readonly isStopping = signal(false);
    readonly notices = signal<readonly Notice[]>([]);
    /** The message that was sent and that the server has not confirmed yet. */
    readonly sending = signal<readonly Part[] | null>(null);
    /** Calls made while the page was open: only their bridge actions are sent to a host page. */
    readonly liveCalls = new Set<string>();
    /** Messages sent by this page, by turn ID, with their images: the server returns text only. */
    readonly sent = new Map<string, readonly Part[]>();
    readonly isWaiting: ReadonlySignal<boolean> = computed(
        () => !this.isRunning.value && this.entries.value.some((each) => each.turn.value.status === "paused"),
    );

    readonly schemas: Schemas;
    readonly pictures: Pictures;
    readonly versions = new Versions(this);
    private readonly byId = new Map<string, Entry>();
    private readonly growing = new Map<string, Growing>();
    private readonly unsubscribe: () => void;
    private frame: { animationFrame: number; timer: number } | null = null;
    private newer = new Set<string>();
    private readonly loads = new Latest();
    private loading: Promise<void> = Promise.resolve();
    /** The reload in progress after an event was missed: one, however many patches reveal the gap. */
    private reloading: Promise<void> | null = null;
    private readonly details = new Latest();
    /** Answers that say whether a run is in progress. */
    private readonly runs = new Latest();
    /** Resolve when the next branch is shown. */
    private branchWaiters: (() => void)[] = [];
    /** Whether another branch began: its first message has versions, which events do not name. */
    private isRewound = false;

    /** `first`: the first message, if this page has sent it, until its turn is loaded. */
    constructor(
        readonly id: string,
        private first: readonly Part[] | null = null,
    ) {
        this.schemas = new Schemas(id);
        this.pictures = new Pictures(id, this.sent);
        const unwatch = watchSessions((change) => this.changed(change));
        const unlisten = listen(id, this);
        this.unsubscribe = () => {
            unwatch();
            unlisten();
        };
    }

    close(): void {
        this.unsubscribe();
        this.unschedule();
        this.loads.outdate();
    }

    // --- what the reader does ----------------------------------------------------------------------------------------

    async say(parts: readonly Part[]): Promise<void> {
        this.sending.value = parts;
        this.notices.value = [];
        const run = this.runs.begin();
        try {
            await send("chat:send", { session_id: this.id, message: messageOf(parts) });
            if (run.settle()) this.isRunning.value = true;
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

    async compact(): Promise<void> {
        await send("chat:compact", { session_id: this.id });
    }

    async change(path: string, body: object): Promise<void> {
        await api.patch(`/api/sessions/${this.id}${path}`, body);
        await this.describe();
    }

    async describe(): Promise<void> {
        const request = this.details.begin();
        const detail = await api.get<SessionDetail>(`/api/sessions/${this.id}`);
        if (request.settle()) this.detail.value = detail;
    }

    // --- what the server says ----------------------------------------------------------------------------------------

    /** Subscribes before it fetches, so that no event falls between the two. */
    connected(): void {
        void this.loadBranch();
    }

    has(turnId: string): boolean {
        return this.byId.has(turnId);
    }

    /** Resolves when the next branch is shown. The server announces one, and then it is loaded; whoever asks the server for
     *  another branch calls this first, and waits. */
    branchShown(): Promise<void> {
        return new Promise((resolve) => this.branchWaiters.push(resolve));
    }

    private async loadBranch(): Promise<void> {
        await this.load();
        for (const resolve of this.branchWaiters.splice(0)) resolve();
    }

    /** Fetches everything again. Resolves when it is shown, also if another fetch, begun meanwhile, shows it. */
    async load(): Promise<void> {
        this.loading = this.fetch();
        for (let latest: Promise<void> | null = null; latest !== this.loading;) {
            latest = this.loading;
            await latest;
        }
    }

    /** Viewers of a shared conversation get no schemas: the run service shows a thread to its owner alone. */
    private refreshSchemas(): void {
        if (this.detail.peek()?.viewer_role === "owner") void this.schemas.refresh(this.byId.size);
    }

    private async fetch(): Promise<void> {
        const load = this.loads.begin();
        try {
            const known = this.describe();
            known.catch(() => undefined);
            const run = this.runs.begin();
            this.newer = new Set();
            const ack = await send<{ status: string; running: boolean }>("session:subscribe", { session_id: this.id });
            const turns = await api.get<Turn[]>(`/api/sessions/${this.id}/messages`);
            await known;
            if (!load.isCurrent()) return;
            batch(() => {
                // Events received since the subscription are newer than the fetched turns.
                const fetched = turns.filter((turn) => !this.newer.has(turn.turn_id));
                const current = new Set(turns.map((turn) => turn.turn_id));
                for (const id of [...this.byId.keys()])
                    if (!current.has(id) && !this.newer.has(id)) this.byId.delete(id);
                for (const turn of fetched) this.put(turn);
                for (const turn of turns) this.addVersions(turn);
                this.arrange();
                this.remember();
                if (run.settle()) this.isRunning.value = ack.running;
                this.isLoaded.value = true;
                this.error.value = null;
            });
            this.refreshSchemas();
        } catch (error) {
            if (load.isCurrent()) this.error.value = error;
        }
    }

    chatStart(): void {
        this.runs.outdate();
        this.isRunning.value = true;
    }

    turnStart(event: TurnEvent): void {
        this.flush();
        this.newer.add(event.turn_id);
        this.growing.set(event.turn_id, { last: event.patch_sequence ?? 0, patches: [] });
        batch(() => {
            if (event.role === "user") this.confirm(event);
            if (event.status === "streaming") this.isRunning.value = true;
            this.put(event);
            this.arrange();
        });
        if (!this.isRewound || event.role !== "user") return;
        this.isRewound = false;
        void this.load();
    }

    turnPatch(patch: Patch): void {
        const growing = this.growing.get(patch.turn_id);
        if (growing === undefined || patch.sequence > growing.last + 1) {
            this.reloading ??= this.load().finally(() => (this.reloading = null));
            return;
        }
        if (patch.sequence <= growing.last) return;
        growing.last = patch.sequence;
        growing.patches.push(patch);
        if (patch.patch_type === "add_tool_call") this.liveCalls.add(String(patch.data["id"]));
        this.schedule();
    }

    turnEnd(event: TurnEvent): void {
        this.newer.add(event.turn_id);
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
        this.runs.outdate();
        batch(() => {
            this.isRunning.value = false;
            this.isStopping.value = false;
            this.sending.value = null;
            const last = this.entries.peek().findLast((each) => each.turn.peek().role !== "system");
            if (last !== undefined && end.chat_end !== undefined)
                last.turn.value = { ...last.turn.peek(), chat_end: end.chat_end };
        });
        this.pictures.invalidate();
        this.refreshSchemas();
        void this.describe().catch(() => undefined);
    }

    notice(notice: Notice): void {
        this.notices.value = [...this.notices.value, notice];
    }

    private remember(): void {
        const turn = this.entries.peek().find((each) => each.turn.peek().role === "user");
        if (this.first === null || turn === undefined) return;
        this.sent.set(turn.id, this.first);
        this.first = null;
    }

    /** The title, pin or memory setting changed, or another branch is shown, here or in another window. */
    private changed({ session_id: id, reload, ...changes }: Updated): void {
        if (bare(id) !== this.id) return;
        const isAsked = this.details.isPending;
        if (this.detail.value !== null) {
            this.detail.value = { ...this.detail.value, ...changes };
            this.details.outdate(); // answers on their way may be older than the change
        }
        if (isAsked) void this.describe().catch(() => undefined);
        if (reload !== true) return;
        this.isRewound = true;
        void this.loadBranch();
    }

    private confirm(turn: Turn): void {
        const parts = this.sending.peek();
        if (parts !== null) this.sent.set(turn.turn_id, parts);
        this.sending.value = null;
    }

    // --- turns -------------------------------------------------------------------------------------------------------

    private put(turn: Turn): void {
        const known = this.byId.get(turn.turn_id);
        if (known === undefined) this.byId.set(turn.turn_id, { id: turn.turn_id, turn: signal(turn) });
        else known.turn.value = withVersions(turn, known.turn.peek());
    }

    /** Events do not name the versions of a message. */
    private addVersions(fetched: Turn): void {
        const known = this.byId.get(fetched.turn_id);
        if (known !== undefined && fetched.alternatives !== undefined && this.newer.has(fetched.turn_id))
            known.turn.value = withVersions(known.turn.peek(), fetched);
    }

    /** Rebuilds the lists. Their signals change only if a turn was added or removed. */
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

    /** Flushes with the next frame, or after a timeout, because browsers paint no frames for a covered page. */
    private schedule(): void {
        if (this.frame !== null) return;
        const flush = (): void => this.flush();
        this.frame = {
            animationFrame: requestAnimationFrame(flush),
            timer: window.setTimeout(flush, MAX_FRAME_DELAY_MS),
        };
    }

    private unschedule(): void {
        if (this.frame === null) return;
        cancelAnimationFrame(this.frame.animationFrame);
        clearTimeout(this.frame.timer);
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

const withVersions = (turn: Turn, other: Turn): Turn =>
    turn.alternatives === undefined && other.alternatives !== undefined
        ? { ...turn, alternatives: other.alternatives }
        : turn;
