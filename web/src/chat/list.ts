/** The user's conversations: pinned ones first, then by date, loaded in pages and updated live. */
import { signal } from "@preact/signals";
import { api } from "../api/client";
import { key } from "../api/key";
import { Latest } from "../api/latest";
import { Throttle } from "../api/throttle";
import { type Updated, watchSessions } from "./socket";
import { type Session, type SessionPage } from "./wire";

const PAGE = 50;

class SessionList {
    readonly items = signal<readonly Session[]>([]);
    readonly total = signal(0);
    readonly query = signal("");
    readonly isPartial = signal(false);
    readonly error = signal<unknown>(null);
    readonly isLoaded = signal(false);
    private readonly requests = new Latest();
    private wanted = PAGE;
    private readonly loading = new Throttle(() => this.fetch(0, Math.min(200, this.wanted)));

    /** Reloads as many items as are shown, or were asked for meanwhile. */
    async refresh(): Promise<void> {
        await this.loading.now();
    }

    async search(query: string): Promise<void> {
        this.query.value = query;
        this.wanted = PAGE;
        await this.loading.now();
    }

    async more(): Promise<void> {
        const shown = this.items.peek().length;
        this.wanted = shown + PAGE;
        await this.fetch(shown, PAGE);
    }

    async remove(id: string): Promise<void> {
        await api.delete(`/api/sessions/${id}`);
        this.drop(`sess_${id}`);
    }

    /** Subscribes to live changes while a component is mounted. */
    follow(): () => void {
        const look = (): void => void (document.visibilityState === "visible" && this.refresh());
        const stop = watchSessions(
            (change) => this.changed(change),
            () => this.refreshSoon(),
        );
        document.addEventListener("visibilitychange", look);
        void this.refresh();
        return () => {
            stop();
            document.removeEventListener("visibilitychange", look);
            this.loading.cancel();
        };
    }

    /** Clears the list when another user signs in. */
    forget(): void {
        this.requests.outdate();
        this.items.value = [];
        this.wanted = PAGE;
        this.total.value = 0;
        this.query.value = "";
        this.isLoaded.value = false;
    }

    /**
     * Applies a change. The changed conversation is then the newest one, and the server's order is known: the list is
     * loaded only for a conversation that it does not show, for what was deleted, and if a search may find something else.
     */
    private changed({ session_id: id, deleted, ...changes }: Updated): void {
        const before = this.items.peek();
        const session = before.find((each) => each.id === id);
        if (deleted) this.drop(id);
        else if (session !== undefined) {
            const changed = { ...session, ...changes, updated_at: new Date().toISOString() };
            const others = before.filter((each) => each !== session);
            const place = changed.is_pinned ? 0 : others.filter((each) => each.is_pinned).length;
            this.items.value = [...others.slice(0, place), changed, ...others.slice(place)];
        }
        const isApplied = session !== undefined && !deleted && this.query.peek() === "";
        if (!isApplied || this.requests.isPending) this.refreshSoon(); // an answer on its way may be older than the change
    }

    /** Nothing is loaded while nobody sees the page. `follow` loads it when somebody does. */
    private refreshSoon(): void {
        if (document.visibilityState === "visible") this.loading.soon();
    }

    private drop(id: string): void {
        this.items.value = this.items.peek().filter((each) => each.id !== id);
    }

    private async fetch(offset: number, limit: number): Promise<void> {
        const request = this.requests.begin();
        try {
            const page = await api.get<SessionPage>("/api/sessions", { q: this.query.peek(), offset, limit });
            if (!request.isCurrent()) return;
            const previous = this.items.peek().slice(0, offset);
            const known = new Set(previous.map((each) => each.id));
            this.items.value = [...previous, ...page.items.filter((each) => !known.has(each.id))];
            this.total.value = page.total;
            this.isPartial.value = page.content_match_truncated === true;
            this.error.value = null;
            this.isLoaded.value = true;
        } catch (error) {
            if (request.isCurrent()) this.error.value = error;
        } finally {
            request.settle();
        }
    }
}

export const sessions = new SessionList();
key.subscribe(() => sessions.forget());
