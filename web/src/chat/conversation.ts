/** One live conversation: its turns, kept up to date by events, and the user's actions. Patches are shown once per frame. */
import { batch, computed, signal, type ReadonlySignal } from "@preact/signals";
import { api } from "../api/client";
import { isReadOnly } from "../api/key";
import { Latest } from "../api/latest";
import { NextFrame } from "../browser/frame";
import { Pictures } from "./pictures";
import { Schemas } from "./schemas";
import { listen, type Listener, type Notice, send, type Updated, watchSessions } from "./socket";
import { TurnStore } from "./turns";
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

export class Conversation implements Listener {
    readonly detail = signal<SessionDetail | null>(null);
    readonly error = signal<unknown>(null);
    /** Whether the conversation was deleted, here or in another window. */
    readonly isDeleted = signal(false);
    private readonly turns = new TurnStore();
    readonly entries = this.turns.entries;
    readonly children = this.turns.children;
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
    private readonly frame = new NextFrame(() => this.turns.flush());
    private readonly unsubscribe: () => void;
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
        this.frame.cancel();
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
        return this.turns.has(turnId);
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
        if (this.detail.peek()?.viewer_role === "owner") void this.schemas.refresh(this.turns.size);
    }

    private async fetch(): Promise<void> {
        const load = this.loads.begin();
        try {
            const known = this.describe();
            known.catch(() => undefined);
            const run = this.runs.begin();
            this.turns.beginLoad();
            const ack = await send<{ status: string; running: boolean }>("session:subscribe", { session_id: this.id });
            const turns = await api.get<Turn[]>(`/api/sessions/${this.id}/messages`);
            await known;
            if (!load.isCurrent()) return;
            batch(() => {
                this.turns.show(turns);
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
        batch(() => {
            if (event.role === "user") this.confirm(event);
            if (event.status === "streaming") this.isRunning.value = true;
            this.turns.start(event);
        });
        if (!this.isRewound || event.role !== "user") return;
        this.isRewound = false;
        void this.load();
    }

    turnPatch(patch: Patch): void {
        const outcome = this.turns.patch(patch);
        if (outcome === "gap") this.reloading ??= this.load().finally(() => (this.reloading = null));
        if (outcome !== "collected") return;
        if (patch.patch_type === "add_tool_call") this.liveCalls.add(String(patch.data["id"]));
        this.frame.schedule();
    }

    turnEnd(event: TurnEvent): void {
        this.turns.end(event);
    }

    chatEnd(end: ChatEnd): void {
        this.flush();
        this.runs.outdate();
        batch(() => {
            this.isRunning.value = false;
            this.isStopping.value = false;
            this.sending.value = null;
            if (end.chat_end !== undefined) this.turns.endChat(end.chat_end);
        });
        this.pictures.invalidate();
        this.refreshSchemas();
        void this.describe().catch(() => undefined);
    }

    notice(notice: Notice): void {
        this.notices.value = [...this.notices.value, notice];
    }

    private flush(): void {
        this.frame.cancel();
        this.turns.flush();
    }

    private remember(): void {
        const turn = this.entries.peek().find((each) => each.turn.peek().role === "user");
        if (this.first === null || turn === undefined) return;
        this.sent.set(turn.id, this.first);
        this.first = null;
    }

    /** The title, pin or memory setting changed, another branch is shown, or it was deleted, here or in another window. */
    private changed({ session_id: id, reload, deleted, ...changes }: Updated): void {
        if (bare(id) !== this.id) return;
        if (deleted === true) this.isDeleted.value = true;
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
}
