/**
 * UI schemas of answers. Blade does not carry them, so they come from the run service's history, by message ID.
 * The history is returned in whole days: only the newest day is fetched, and not for long conversations.
 */
import { signal } from "@preact/signals";
import { api } from "../api/client";
import type { Turn } from "./wire";

interface Day {
    messages: { id: string; role: string; ui_schema?: unknown }[];
}

const MAX_TURNS = 500;
const PREFIX = "turn_";

export class Schemas {
    private readonly known = signal<ReadonlyMap<string, unknown>>(new Map());

    constructor(private readonly session: string) {}

    of(turn: Turn): unknown {
        return this.known.value.get(turn.turn_id.replace(PREFIX, "")) ?? null;
    }

    /** Fetches the schemas of the newest answers. */
    async refresh(turns: number): Promise<void> {
        if (turns === 0 || turns > MAX_TURNS) return;
        try {
            const day = await api.get<Day>("/api/v1/agent/history", { threadId: this.session });
            const messages = day.messages.filter((each) => each.ui_schema != null);
            if (messages.length > 0) {
                this.known.value = new Map([
                    ...this.known.peek(),
                    ...messages.map((each) => [each.id, each.ui_schema] as const),
                ]);
            }
        } catch {
            // The run service is not available here. The answer's text has the same content.
        }
    }
}
