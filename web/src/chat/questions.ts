/** Calls that wait for the user: questions and permissions. Pure. */
import { parsed } from "./fold";
import type { Answer, Json, Question, ToolCall, Turn } from "./wire";

const ASK = "AskUserQuestion";
const DENIED = /^(Tool call denied|denied by the user)/;
const PERMISSION = /^perm\d*_/;

export const isQuestion = (call: ToolCall): boolean => call.tool_name === ASK && !isPermission(call);

/** Whether the call asks for permission for another call, with which it is shown. */
export const isPermission = (call: ToolCall): boolean => call.tool_name === ASK && PERMISSION.test(call.id);

/** Whether another call asks this question while it runs; it is not a call of the model. */
export const isAskedByCall = (call: ToolCall): boolean => /^ask\d+_/.test(call.id);

/** The ID of the permission that a call waits for, as answers name it; null if it waits for none. */
export function permissionFor(call: ToolCall, turn: Turn): string | null {
    if (call.status !== "awaiting_answer") return null;
    const id = call.pending_question_ref?.child_tool_call_id ?? "";
    const question = turn.tool_calls.find((each) => each.id === id);
    return question !== undefined && isPermission(question) ? id : null;
}

/** Whether the user denied the call, which the protocol reports as an error. */
export const isDenied = (call: ToolCall): boolean =>
    call.status === "error" && typeof call.result === "string" && DENIED.test(call.result);

/** The answers to a permission: indexes of the protocol's list. */
export const ALLOW_ONCE = 0;
export const ALLOW_ALWAYS = 1;
export const DENY = 2;

export const decision = (id: string, choice: number, reason: string): Answer => ({
    tool_call_id: id,
    selections: { "0": [choice] },
    custom: reason.trim() ? { "0": reason.trim() } : {},
});

/** What an answer decided about a call. */
export interface Permission {
    tool: string;
    choice: number;
    isRepeat: boolean;
}

/** The permission that an answer gives or denies; null if it answers something else. */
export function permissionIn(content: Readonly<Record<string, Json>>): Permission | null {
    const asked = content["permission"] as { tool_name: string; repeat: boolean } | undefined;
    const selections = content["selections"] as { "0"?: number[] } | undefined;
    const choice = selections?.["0"]?.[0];
    if (asked === undefined || choice === undefined) return null;
    return { tool: asked.tool_name, choice, isRepeat: asked.repeat };
}

export function questionsOf(call: ToolCall): Question[] {
    const parameters = parsed(call.arguments);
    if (typeof parameters !== "object" || parameters === null || Array.isArray(parameters)) return [];
    const questions = parameters["questions"];
    return Array.isArray(questions) ? (questions as unknown as Question[]) : [];
}

/** The current choice for a question: option indexes and free text. */
export interface Chosen {
    places: ReadonlySet<number>;
    text: string;
}

export const isAnswered = (chosen: Chosen | undefined): boolean =>
    chosen !== undefined && (chosen.places.size > 0 || chosen.text.trim() !== "");

export function answerOf(call: ToolCall, chosen: readonly Chosen[]): Answer {
    const answer: Answer = { tool_call_id: call.id, selections: {}, custom: {} };
    chosen.forEach(({ places, text }, index) => {
        if (places.size > 0) answer.selections[index] = [...places].sort((a, b) => a - b);
        if (text.trim()) answer.custom[index] = text.trim();
    });
    return answer;
}
