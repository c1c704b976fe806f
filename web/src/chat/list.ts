/** The user's conversations: pinned ones first, then by date, loaded in pages and updated live. */
import { signal } from "@preact/signals";
import { api } from "../api/client";
import { key } from "../api/key";
import { watchSessions } from "./socket";
import { bare, type Session, type SessionPage } from "./wire";

const PAGE = 50;

class SessionList {
    readonly items = signal<readonly Session[]>([]);
    readonly total = signal(0);
    readonly query = signal("");
    readonly isPartial = signal(false);
    readonly error = signal<unknown>(null);
    readonly isLoaded = signal(false);
    private loads = 0;
    private wanted = PAGE;

    /** Reloads as many items as are shown, or were asked for meanwhile. */
    async refresh(): Promise<void> {
        await this.fetch(0, Math.min(200, this.wanted));
    }

    async search(query: string): Promise<void> {
        this.query.value = query;
        this.wanted = PAGE;
        await this.fetch(0, PAGE);
    }

    async more(): Promise<void> {
        const shown = this.items.peek().length;
        this.wanted = shown + PAGE;
        await this.fetch(shown, PAGE);
    }

    async remove(id: string): Promise<void> {
        await api.delete(`/api/sessions/${id}`);
        this.items.value = this.items.peek().filter((each) => bare(each.id) !== id);
        await this.refresh();
    }

    /** Subscribes to live changes while a component is mounted. */
    follow(): () => void {
        const look = (): void => void (document.visibilityState === "visible" && this.refresh());
        const stop = watchSessions((change) => {
            if (this.items.peek().some((each) => each.id === change.session_id)) {
                const { session_id: id, ...changes } = change;
                this.items.value = this.items.peek().map((each) => (each.id === id ? { ...each, ...changes } : each));
            }
            look();
        });
        document.addEventListener("visibilitychange", look);
        void this.refresh();
        return () => {
            stop();
            document.removeEventListener("visibilitychange", look);
        };
    }

    /** Clears the list when another user signs in. */
    forget(): void {
        this.loads += 1;
        this.items.value = [];
        this.wanted = PAGE;
        this.total.value = 0;
        this.query.value = "";
        this.isLoaded.value = false;
    }

    private async fetch(offset: number, limit: number): Promise<void> {
        const load = ++this.loads;
        try {
            const page = await api.get<SessionPage>("/api/sessions", { q: this.query.peek(), offset, limit });
            if (load !== this.loads) return;
            const previous = this.items.peek().slice(0, offset);
            const known = new Set(previous.map((each) => each.id));
            this.items.value = [...previous, ...page.items.filter((each) => !known.has(each.id))];
            this.total.value = page.total;
            this.isPartial.value = page.content_match_truncated === true;
            this.error.value = null;
            this.isLoaded.value = true;
        } catch (error) {
            if (load === this.loads) this.error.value = error;
        }
    }
}

export const sessions = new SessionList();
key.subscribe(() => sessions.forget());
