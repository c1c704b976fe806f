/** The timeline of a run: what the server says, and the rows and bars that show it. Pure. */
import type { Block, Json } from "../../chat/wire";

export interface Usage {
    input_tokens: number;
    output_tokens: number;
}

export interface Run {
    chat_run_id: string;
    sequence: number;
    protocol: string;
    started_at: string;
    resumed_at: string[];
    ended_at: string | null;
    reason: string | null;
    code: string | null;
    message: string | null;
    usage: Usage;
}

interface Span {
    turn_id: string;
    loop_id: string;
    parent_fork_tool_call_id: string | null;
    /** Orders runs, steps and calls by their begin. */
    sequence: number;
    ended_at: string | null;
}

export interface Step extends Span {
    started_at: string;
    status: "completed" | "interrupted" | "failed" | "cut" | null;
    model: string | null;
    usage: Usage | null;
    context_window: number | null;
    blocks: Block[];
}

export interface Wait {
    kind: "client" | "permission" | "question" | null;
    started_at: string;
    ended_at: string | null;
    granted: boolean | null;
}

export interface ToolRun extends Span {
    tool_call_id: string;
    tool_name: string;
    kind: string;
    arguments: Json;
    opened_at: string;
    started_at: string | null;
    outcome: "done" | "failed" | "denied" | "cancelled" | "interrupted" | null;
    result: Json;
    waits: Wait[];
}

export interface Timeline {
    runs: Run[];
    steps: Step[];
    calls: ToolRun[];
}

export interface Message {
    role: "user" | "assistant" | "tool" | "system";
    blocks: Block[];
}

export interface ModelInput {
    summary: string | null;
    messages: Message[];
}

export type Row = { id: string; sequence: number; depth: number; begin: number; end: number } & (
    { type: "step"; step: Step; number: number } | { type: "call"; call: ToolRun }
);

export const timeOf = (at: string): number => new Date(at).getTime();

/** When a run or a part of it ended; now, if it continues. */
export const endOf = (ended: string | null, now: number): number => (ended === null ? now : timeOf(ended));

/** The model calls and tool calls in the order in which they began; those of sub-agents are deeper. */
export function rowsOf({ runs, steps, calls }: Timeline, now: number): Row[] {
    const loops = new Map(calls.map((call) => [call.tool_call_id, call] as const));
    const depthOf = (span: Span): number => {
        const parent = span.parent_fork_tool_call_id === null ? undefined : loops.get(span.parent_fork_tool_call_id);
        return parent === undefined ? 0 : depthOf(parent) + 1;
    };
    const last = Math.max(...runs.map((run) => endOf(run.ended_at, now)));
    const numbers = new Map<string, number>();
    const rows: Row[] = steps.map((step) => {
        const number = (numbers.get(step.loop_id) ?? 0) + 1;
        numbers.set(step.loop_id, number);
        const begin = timeOf(step.started_at);
        return {
            type: "step",
            id: step.turn_id,
            sequence: step.sequence,
            step,
            number,
            depth: depthOf(step),
            begin,
            end: endOf(step.ended_at, last),
        };
    });
    for (const call of calls) {
        const begin = timeOf(call.opened_at);
        rows.push({
            ...{ type: "call", id: call.tool_call_id, sequence: call.sequence, call, depth: depthOf(call) },
            ...{ begin, end: endOf(call.ended_at, Math.max(begin, last)) },
        });
    }
    return rows.sort((one, other) => one.sequence - other.sequence);
}

/** The time in which something ran, in milliseconds: pauses between runs do not count. */
export function activeMs({ runs }: Timeline, now: number): number {
    return runs.reduce((sum, run) => sum + endOf(run.ended_at, now) - timeOf(run.started_at), 0);
}

/** A place on the axis from 0 to 1. Pauses between runs have no width, so that a long one does not hide the rest. */
export function scaleOf(timeline: Timeline, now: number): (at: number) => number {
    const total = Math.max(1, activeMs(timeline, now));
    return (at) => {
        const before = timeline.runs.reduce((sum, run) => {
            const begin = timeOf(run.started_at);
            return sum + Math.max(0, Math.min(at, endOf(run.ended_at, now)) - begin);
        }, 0);
        return Math.min(1, before / total);
    };
}

/** Tokens of all model calls of the main loop and the sub-agents; null if none of them reported any. */
export function tokensOf({ steps }: Timeline): Usage | null {
    const sum = (of: keyof Usage): number => steps.reduce((total, step) => total + (step.usage?.[of] ?? 0), 0);
    const usage = { input_tokens: sum("input_tokens"), output_tokens: sum("output_tokens") };
    return isKnown(usage) ? usage : null;
}

/** Whether a model reported tokens: some report none. */
export const isKnown = (usage: Usage): boolean => usage.input_tokens + usage.output_tokens > 0;
