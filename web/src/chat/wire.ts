/** Blade's wire types, as far as the console uses them. The names are the protocol's. */

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

export interface Session {
    id: string;
    intent: string;
    status: "created" | "running" | "completed" | "failed" | "interrupted" | "waiting_for_input";
    created_at: string;
    updated_at: string;
    solution_id: string | null;
    model: string | null;
    is_pinned: boolean;
    memory_enabled: boolean;
    shared: boolean;
}

export interface SessionDetail extends Session {
    viewer_role: "owner" | "viewer";
    solution: Solution | null;
}

export interface Solution {
    id: string;
    name: string;
    description: string;
}

export interface SessionPage {
    items: Session[];
    total: number;
    content_match_truncated?: boolean;
}

export interface Attachment {
    kind: "image" | "file" | "audio" | "video" | "data";
    name: string | null;
    media_type: string | null;
    size: number;
    /** The content of a `data` block. */
    data?: Json;
    /** Where the content can be read: a path of this server, which needs the key, or another address. */
    url?: string;
}

export interface Block {
    type: string;
    content: Json;
    tool_call_id?: string | null;
    tool_name?: string | null;
    display_name?: string | null;
    attachment?: Attachment;
}

export type CallStatus = "pending" | "done" | "error" | "cancelled" | "awaiting_answer";

/** The question that a call waits for. A repeat may have run already: the server restarted while it ran. */
export interface QuestionRef {
    child_loop_name: string;
    child_tool_call_id: string;
    description: string | null;
    repeat?: boolean;
}

export interface ToolCall {
    id: string;
    tool_name: string;
    display_name: string;
    arguments: string;
    status: CallStatus;
    result: Json;
    duration_ms: number | null;
    pending_question_ref: QuestionRef | null;
}

export type TurnStatus = "streaming" | "completed" | "paused" | "failed" | "interrupted";

export interface Turn {
    id: string;
    sequence: number;
    turn_id: string;
    loop_id: string;
    kind: "message" | "compaction";
    role: "user" | "assistant" | "system";
    status: TurnStatus;
    blocks: Block[];
    tool_calls: ToolCall[];
    model: string | null;
    usage: { input_tokens: number; output_tokens: number } | null;
    duration_ms: number;
    started_at: string | null;
    memory_refs: { id: number; content_preview: string; skill_name: string | null }[] | null;
    parent_fork_tool_call_id: string | null;
    summary_preview: string | null;
    summary_full: string | null;
    archived_count: number | null;
    tokens_before: number | null;
    tokens_after: number | null;
    failure_reason: string | null;
    archived?: boolean;
    chat_run_id?: string | null;
    /** Whether the server crashed during this step. It is repeated, so its text is not part of the answer. */
    cut?: true;
    /** On the last turn of a chat without a complete answer. */
    chat_end?: ChatEnding;
    /** All versions of an edited or repeated message, this one included, oldest first. */
    alternatives?: { checkpoint_id: string; turn_id: string }[];
}

/** How a chat without a complete answer ended. */
export interface ChatEnding {
    status: ChatEnd["status"];
    code: string | null;
    message: string | null;
}

/** `turn:start` and `turn:end`. */
export interface TurnEvent extends Turn {
    session_id: string;
    patch_sequence?: number;
}

export interface Patch {
    session_id: string;
    sequence: number;
    turn_id: string;
    patch_type: "add_content" | "add_tool_call" | "tool_result" | "set_status" | "set_tool_status";
    data: { [name: string]: Json };
}

export interface ChatEnd {
    session_id: string;
    status: "completed" | "interrupted" | "failed";
    finish_reason: string | null;
    stop_reason?: string | null;
    waiting_for_input?: boolean;
    chat_end?: ChatEnding;
}

export interface Question {
    question: string;
    header?: string;
    options?: { label: string; description?: string }[];
    multiSelect?: boolean;
}

export type Part =
    | { type: "text"; text: string }
    | { type: "image_url"; image_url: { url: string } }
    | { type: "file"; name: string; data: string };

/** Whether the turn is a message of the user, and not only a reply to a question. */
export const isMessage = (turn: Turn): boolean =>
    turn.role === "user" &&
    turn.blocks.some((block) => block.type === "text") &&
    !turn.blocks.some((block) => block.type === "ask_user_answer");

/** The message to send: a plain string if it is only text. */
export const messageOf = (parts: readonly Part[]): string | readonly Part[] =>
    parts.length === 1 && parts[0]?.type === "text" ? parts[0].text : parts;

export const textOf = (turn: Turn): string =>
    turn.blocks
        .filter((block) => block.type === "text" && !block.attachment && typeof block.content === "string")
        .map((block) => block.content as string)
        .join("");

export interface Answer {
    tool_call_id: string;
    selections: Record<string, number[]>;
    custom: Record<string, string>;
}

/** A session ID without Blade's prefix, as in the other protocols and in the console's addresses. */
export const bare = (id: string): string => id.replace(/^sess_/, "");
