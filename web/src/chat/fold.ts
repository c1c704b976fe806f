/** Applies the protocol's patches to turns. Pure: arguments are not modified. */
import type { Block, CallStatus, Json, Patch, ToolCall, Turn } from "./wire";

/** The turn after a patch. */
export function fold(turn: Turn, patch: Patch): Turn {
    const data = patch.data;
    switch (patch.patch_type) {
        case "add_content":
            return { ...turn, blocks: appended(turn.blocks, data) };
        case "add_tool_call":
            return withCall(turn, data);
        case "tool_result":
            return withResult(turn, data);
        case "set_status":
            return { ...turn, status: data["status"] as Turn["status"] };
        case "set_tool_status":
            return changed(turn, data["tool_call_id"], {
                status: data["status"] as CallStatus,
                pending_question_ref: (data["pending_question_ref"] ?? null) as ToolCall["pending_question_ref"],
            });
        default:
            return turn; // a patch of a newer server
    }
}

/** Appends text or a whole block at `block_index`, or to the last block of that kind. */
function appended(blocks: readonly Block[], data: Patch["data"]): Block[] {
    const last = blocks.length - 1;
    const follows = data["text_delta"] !== undefined && blocks[last]?.type === data["type"];
    const index = typeof data["block_index"] === "number" ? data["block_index"] : follows ? last : blocks.length;
    const before = blocks[index];
    const block: Block = { ...before, type: data["type"] as string, content: contentOf(before, data) };
    for (const name of ["tool_call_id", "tool_name", "display_name"] as const) {
        if (data[name] !== undefined) block[name] = data[name] as string | null;
    }
    if (data["attachment"] !== undefined)
        block.attachment = data["attachment"] as unknown as NonNullable<Block["attachment"]>;
    const next = blocks.slice();
    next[index] = block;
    return next;
}

function contentOf(before: Block | undefined, data: Patch["data"]): Json {
    if (data["content"] !== undefined) return data["content"];
    const text = typeof before?.content === "string" ? before.content : "";
    return text + String(data["text_delta"] ?? "");
}

function withCall(turn: Turn, data: Patch["data"]): Turn {
    const call = {
        ...(data as unknown as ToolCall),
        result: null,
        duration_ms: null,
        pending_question_ref: null,
    };
    if (turn.tool_calls.some((each) => each.id === call.id)) return changed(turn, call.id, call);
    const block: Block = {
        type: "tool_use",
        content: parsed(call.arguments),
        tool_call_id: call.id,
        tool_name: call.tool_name,
        display_name: call.display_name,
    };
    return { ...turn, tool_calls: [...turn.tool_calls, call], blocks: [...turn.blocks, block] };
}

function withResult(turn: Turn, data: Patch["data"]): Turn {
    const id = data["tool_call_id"] as string;
    const call = turn.tool_calls.find((each) => each.id === id);
    const result = data["result"] ?? null;
    const updated = changed(turn, id, {
        result,
        status: data["status"] as CallStatus,
        duration_ms: data["duration_ms"] as number,
        pending_question_ref: null,
    });
    const block: Block = {
        type: "tool_result",
        content: result,
        tool_call_id: id,
        tool_name: call?.tool_name ?? null,
        display_name: call?.display_name ?? null,
    };
    return { ...updated, blocks: [...updated.blocks, block] };
}

function changed(turn: Turn, id: Json | undefined, change: Partial<ToolCall>): Turn {
    return { ...turn, tool_calls: turn.tool_calls.map((each) => (each.id === id ? { ...each, ...change } : each)) };
}

export function parsed(text: string): Json {
    try {
        return JSON.parse(text) as Json;
    } catch {
        return { _raw: text };
    }
}
