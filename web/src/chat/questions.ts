/** Calls that wait for the reader: questions of the agent, and whether a tool may be used. Pure. */
import { parsed } from "./fold";
import type { Answer, Question, ToolCall, Turn } from "./wire";

const ASK = "AskUserQuestion";
const DENIED = /^(Tool call denied|denied by the user)/;
const PERMISSION = "perm_";

export const isQuestion = (call: ToolCall): boolean => call.tool_name === ASK && !isPermission(call);

/** Whether the call is the question about another one: it is shown with that one. */
export const isPermission = (call: ToolCall): boolean => call.tool_name === ASK && call.id.startsWith(PERMISSION);

/** The permission that a call waits for, by the id that an answer names; null when it waits for none. */
export function permissionFor(call: ToolCall, turn: Turn): string | null {
    if (call.status !== "awaiting_answer") return null;
    const id = call.pending_question_ref?.child_tool_call_id ?? "";
    const asked = turn.tool_calls.find((each) => each.id === id);
    return asked !== undefined && isPermission(asked) ? id : null;
}

/** Whether the reader said no: the call failed, and yet nothing went wrong. */
export const isDenied = (call: ToolCall): boolean =>
    call.status === "error" && typeof call.result === "string" && DENIED.test(call.result);

/** What a permission can be answered with: places in the protocol's list. */
export const ALLOW_ONCE = 0;
export const ALLOW_ALWAYS = 1;
export const DENY = 2;

export const decision = (id: string, choice: number, reason: string): Answer => ({
    tool_call_id: id,
    selections: { "0": [choice] },
    custom: reason.trim() ? { "0": reason.trim() } : {},
});

export function questionsOf(call: ToolCall): Question[] {
    const said = parsed(call.arguments);
    if (typeof said !== "object" || said === null || Array.isArray(said)) return [];
    const questions = said["questions"];
    return Array.isArray(questions) ? (questions as unknown as Question[]) : [];
}

/** What was chosen so far: for each question the places of its options, and words of one's own. */
export interface Chosen {
    places: ReadonlySet<number>;
    words: string;
}

export const isAnswered = (chosen: Chosen | undefined): boolean =>
    chosen !== undefined && (chosen.places.size > 0 || chosen.words.trim() !== "");

export function answerOf(call: ToolCall, chosen: readonly Chosen[]): Answer {
    const answer: Answer = { tool_call_id: call.id, selections: {}, custom: {} };
    chosen.forEach(({ places, words }, index) => {
        if (places.size > 0) answer.selections[index] = [...places].sort((a, b) => a - b);
        if (words.trim()) answer.custom[index] = words.trim();
    });
    return answer;
}
