/**
 * UI schemas of answers. Blade has no form for them; the run service's history holds them, by the message they belong to.
 * It gives whole days, so that it is asked for the newest one only, and not in conversations where a day is long.
 */
import { signal } from "@preact/signals";
import { api } from "../api/client";
import type { Turn } from "./wire";

interface Day {
    messages: { id: string; role: string; ui_schema?: unknown }[];
}

const LONGEST = 500;
const PREFIX = "turn_";

export class Schemas {
    private readonly known = signal<ReadonlyMap<string, unknown>>(new Map());

    constructor(private readonly session: string) {}

    of(turn: Turn): unknown {
        return this.known.value.get(turn.turn_id.replace(PREFIX, "")) ?? null;
    }

    /** Look for those of the newest answers, in a conversation of so many turns. */
    async refresh(turns: number): Promise<void> {
        if (turns === 0 || turns > LONGEST) return;
        try {
            const day = await api.get<Day>("/api/v1/agent/history", { threadId: this.session });
            const found = day.messages.filter((each) => each.ui_schema != null);
            if (found.length > 0) {
                this.known.value = new Map([
                    ...this.known.peek(),
                    ...found.map((each) => [each.id, each.ui_schema] as const),
                ]);
            }
        } catch {
            // The run service is not served here: the answer's words say the same.
        }
    }
}
