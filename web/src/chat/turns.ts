/**
 * The turns of one conversation, kept up to date by events. Knows no socket, no server and no browser.
 *
 * Every turn is a signal of its own, so that a new word renders one turn instead of all of them. Patches are collected
 * until they are flushed.
 */
import { batch, signal, type Signal } from "@preact/signals";
import { fold } from "./fold";
import type { ChatEnding, Patch, Turn, TurnEvent } from "./wire";

export interface Entry {
    readonly id: string;
    readonly turn: Signal<Turn>;
}

interface Growing {
    last: number;
    patches: Patch[];
}

export class TurnStore {
    /** Turns of the main loop, oldest first. */
    readonly entries = signal<readonly Entry[]>([]);
    /** Turns of sub-agents, by the tool call that started them. */
    readonly children = signal<ReadonlyMap<string, readonly Entry[]>>(new Map());
    private readonly byId = new Map<string, Entry>();
    private readonly growing = new Map<string, Growing>();
    /** Turns of which an event was received since `beginLoad`. */
    private newer = new Set<string>();

    get size(): number {
        return this.byId.size;
    }

    has(id: string): boolean {
        return this.byId.has(id);
    }

    /** To be called before the server is asked for the turns: events from now on are newer than its answer. */
    beginLoad(): void {
        this.newer = new Set();
    }

    /** Shows the turns that the server has answered with, instead of those before. */
    show(turns: readonly Turn[]): void {
        const current = new Set(turns.map((turn) => turn.turn_id));
        batch(() => {
            for (const id of [...this.byId.keys()]) if (!current.has(id) && !this.newer.has(id)) this.byId.delete(id);
            for (const turn of turns) if (!this.newer.has(turn.turn_id)) this.put(turn);
            for (const turn of turns) this.addVersions(turn);
            this.arrange();
        });
    }

    start(event: TurnEvent): void {
        this.change(event, event.patch_sequence ?? 0);
    }

    end(event: TurnEvent): void {
        this.change(event, event.patch_sequence ?? this.growing.get(event.turn_id)?.last ?? 0);
    }

    /** Collects a patch until `flush`. Returns `known` for a repeated patch, and `gap` if an event before it was missed. */
    patch(patch: Patch): "collected" | "known" | "gap" {
        const growing = this.growing.get(patch.turn_id);
        if (growing === undefined || patch.sequence > growing.last + 1) return "gap";
        if (patch.sequence <= growing.last) return "known";
        growing.last = patch.sequence;
        growing.patches.push(patch);
        return "collected";
    }

    flush(): void {
        batch(() => {
            for (const [id, growing] of this.growing) {
                const entry = this.byId.get(id);
                if (entry === undefined || growing.patches.length === 0) continue;
                entry.turn.value = growing.patches.reduce(fold, entry.turn.peek());
                growing.patches = [];
            }
        });
    }

    /** Notes on the last turn how the chat ended. */
    endChat(ending: ChatEnding): void {
        const last = this.entries.peek().findLast((each) => each.turn.peek().role !== "system");
        if (last !== undefined) last.turn.value = { ...last.turn.peek(), chat_end: ending };
    }

    private change(event: TurnEvent, last: number): void {
        this.newer.add(event.turn_id);
        this.growing.set(event.turn_id, { last, patches: [] });
        batch(() => {
            this.put(event);
            this.arrange();
        });
    }

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
}

const same = (one: readonly Entry[], other: readonly Entry[]): boolean =>
    one.length === other.length && one.every((entry, index) => entry === other[index]);

const withVersions = (turn: Turn, other: Turn): Turn =>
    turn.alternatives === undefined && other.alternatives !== undefined
        ? { ...turn, alternatives: other.alternatives }
        : turn;
