/** The reader's conversations: pinned ones first, then the latest, page by page, kept up with what is told. */
import { signal } from "@preact/signals";
import { api } from "../api/client";
import { key } from "../api/key";
import { watch } from "./socket";
import { bare, type Session, type SessionPage } from "./wire";

const PAGE = 50;

class SessionList {
    readonly items = signal<readonly Session[]>([]);
    readonly total = signal(0);
    readonly words = signal("");
    readonly isPartial = signal(false);
    readonly error = signal<unknown>(null);
    readonly isLoaded = signal(false);
    private loads = 0;

    /** Fetch as many as are shown, again. */
    async refresh(): Promise<void> {
        await this.fetch(0, Math.max(PAGE, Math.min(200, this.items.peek().length)));
    }

    async search(words: string): Promise<void> {
        this.words.value = words;
        await this.fetch(0, PAGE);
    }

    async more(): Promise<void> {
        await this.fetch(this.items.peek().length, PAGE);
    }

    async remove(id: string): Promise<void> {
        await api.delete(`/api/sessions/${id}`);
        this.items.value = this.items.peek().filter((each) => bare(each.id) !== id);
        await this.refresh();
    }

    /** Follow what happens on the server while somebody looks. */
    follow(): () => void {
        const look = (): void => void (document.visibilityState === "visible" && this.refresh());
        const stop = watch((change) => {
            if (this.items.peek().some((each) => each.id === change.session_id)) {
                const { session_id: id, ...told } = change;
                this.items.value = this.items.peek().map((each) => (each.id === id ? { ...each, ...told } : each));
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

    /** Another reader: nothing of the one before is shown. */
    forget(): void {
        this.loads += 1;
        this.items.value = [];
        this.total.value = 0;
        this.words.value = "";
        this.isLoaded.value = false;
    }

    private async fetch(offset: number, limit: number): Promise<void> {
        const load = ++this.loads;
        try {
            const page = await api.get<SessionPage>("/api/sessions", { q: this.words.peek(), offset, limit });
            if (load !== this.loads) return;
            const kept = this.items.peek().slice(0, offset);
            const known = new Set(kept.map((each) => each.id));
            this.items.value = [...kept, ...page.items.filter((each) => !known.has(each.id))];
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
