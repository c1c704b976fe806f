/** AAP on the wire: which moments a turn's frames belong to. Pure. Source: AAP v3, "Stream events". */

import { type Frame, type Moment, Ordinals, Pieces, moment, parsed, textOf } from "./frames";
import type { SseFrame } from "./sse";

export function aapFrame(sse: SseFrame, at: number): Frame {
    return { protocol: "aap", raw: sse.raw, id: sse.id, name: sse.event, body: parsed(sse.data), at };
}

/** The turn's ID, which only its first frame contains. */
export function aapTurn(frames: readonly Frame[]): string | null {
    const meta = frames[0]?.name === "turn_start" ? frames[0].body["_meta"] : undefined;
    const id = typeof meta === "object" && meta !== null && "turnId" in meta ? meta.turnId : null;
    return typeof id === "string" ? id : null;
}

export function aapMoments(frames: readonly Frame[]): Moment[] {
    const pieces = new Pieces();
    const notes = new Ordinals();
    return frames.map(({ name, body }) => {
        const call = textOf(body["toolCallId"]);
        switch (name) {
            case "turn_start":
                return moment("start");
            case "turn_stop":
                return moment("end", "", textOf(body["stopReason"]));
            case "text_delta":
                return pieces.next("text", "root", textOf(body["delta"]));
            case "thinking_delta":
                return pieces.next("thinking", "root", textOf(body["delta"]));
            case "text":
                return pieces.next("text", "root", textOf(body["text"]));
            case "thinking":
                return pieces.next("thinking", "root", textOf(body["thinking"]));
            case "tool_call":
                return moment("call", call, textOf(body["name"]));
            case "tool_result":
                return moment("result", call, textOf(body["content"]));
            default:
                return notes.next("note", name);
        }
    });
}
