/** A conversation as Markdown, for people to read elsewhere. Pure. */
import { dateTime, t } from "../i18n";
import { parsed } from "./fold";
import { isPermission, isQuestion, questionsOf } from "./questions";
import { type Block, type Json, type ToolCall, type Turn } from "./wire";

interface Answered {
    question: string;
    labels: string[];
    custom: string | null;
}

/** The conversation with its title, speakers, texts, calls and ends. Thoughts are left out. */
export function markdownOf(title: string, agent: string, turns: readonly Turn[]): string {
    const parts = [`# ${title}`];
    let speaker = "";
    for (const turn of turns) {
        if (turn.parent_fork_tool_call_id !== null) continue; // a sub-agent's work is the result of its call
        const next = turn.role === "user" ? t("chat.you") : turn.role === "assistant" ? agent : "";
        if (next !== speaker && next !== "") {
            const at = turn.started_at === null ? "" : ` · ${dateTime(turn.started_at)}`;
            parts.push(`## ${next}${at}`);
        }
        speaker = next;
        parts.push(...turn.blocks.map((block) => blockOf(block, turn)), endOf(turn));
    }
    return `${parts.filter(Boolean).join("\n\n")}\n`;
}

function blockOf(block: Block, turn: Turn): string {
    const text = typeof block.content === "string" ? block.content : "";
    switch (block.type) {
        case "text":
            if (turn.cut) return "";
            if (block.attachment?.data !== undefined) return fenced(block.attachment.data);
            return block.attachment === undefined ? text : `*${block.attachment.name ?? text}*`;
        case "system_notification":
            return text;
        case "ask_user_answer":
            return answersOf(block.content);
        case "tool_use":
            return callOf(turn.tool_calls.find((each) => each.id === block.tool_call_id));
        default:
            return "";
    }
}

/** The answers to questions: `Which one? **The first**`. */
function answersOf(content: Json): string {
    const answers =
        typeof content === "object" && content !== null && !Array.isArray(content) ? content["answers"] : [];
    return (Array.isArray(answers) ? (answers as unknown as Answered[]) : [])
        .map(({ question, labels, custom }) => `${question} **${[...labels, custom].filter(Boolean).join(", ")}**`)
        .join("\n\n");
}

function callOf(call: ToolCall | undefined): string {
    if (call === undefined || isPermission(call)) return "";
    if (isQuestion(call))
        return questionsOf(call)
            .map((each) => `> ${each.question}`)
            .join("\n");
    const result = call.result === null ? "" : `\n\n${fenced(call.result)}`;
    return `**${call.display_name || call.tool_name}**\n\n${fenced(parsed(call.arguments))}${result}`;
}

function endOf({ chat_end: end }: Turn): string {
    return end === undefined ? "" : `*${[end.message ?? t("chat.interrupted"), end.code].filter(Boolean).join(" · ")}*`;
}

/** A value in a code block whose fence is longer than any in it. */
function fenced(value: unknown): string {
    const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
    const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
    const fence = "`".repeat(longest + 1);
    return `${fence}${typeof value === "string" ? "" : "json"}\n${text}\n${fence}`;
}

/** The name of a file for the conversation, without its extension. */
export const fileNameOf = (title: string): string =>
    title
        .replace(/[\p{C}/\\:*?"<>|]+/gu, " ")
        .replace(/\s+/g, " ")
        .trim()
        .slice(0, 60) || "conversation";
