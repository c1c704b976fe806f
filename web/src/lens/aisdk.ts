/** The AI SDK's UI message stream on the wire: which moments its chunks belong to. Pure. Source: AI SDK 6. */

import { type Frame, type Moment, Ordinals, Pieces, moment, parsed, textOf } from "./frames";
import type { SseFrame } from "./sse";

export function aisdkFrame(sse: SseFrame, at: number): Frame {
    const body = parsed(sse.data);
    return { protocol: "ai-sdk", raw: sse.raw, id: sse.id, name: textOf(body["type"]), body, at };
}

export function isAisdkEnd(frame: Frame): boolean {
    return frame.name === "finish";
}

export function aisdkMoments(frames: readonly Frame[]): Moment[] {
    const pieces = new Pieces();
    const ordinals = new Ordinals();
    const moments: (Moment | null)[] = frames.map(({ name, body }) => {
        const call = textOf(body["toolCallId"]);
        const text = textOf(body["delta"]);
        switch (name) {
            case "start":
                return moment("start");
            case "start-step":
                return null;
            case "finish-step":
                return ordinals.next("step");
            case "text-start":
                return pieces.upcoming("text", "root");
            case "text-delta":
                return pieces.next("text", "root", text);
            case "text-end":
                return pieces.closed("text", "root");
            case "reasoning-start":
                return pieces.upcoming("thinking", "root");
            case "reasoning-delta":
                return pieces.next("thinking", "root", text);
            case "reasoning-end":
                return pieces.closed("thinking", "root");
            case "file":
            case "data-block":
                return ordinals.next("block");
            case "data-card":
                return ordinals.next("card");
            case "data-plan":
                return ordinals.next("plan");
            case "error":
            case "abort":
            case "finish":
                return moment("end", "", textOf(body["finishReason"]));
            default:
                if (call === "") return ordinals.next("note", name);
                return name.startsWith("tool-output")
                    ? moment("result", call, textOf(body["output"]))
                    : moment("call", call, textOf(body["toolName"]));
        }
    });
    // A step begins with the chunk after it.
    return moments.map(
        (each, index) => each ?? moments.slice(index + 1).find((next) => next !== null) ?? moment("end"),
    );
}
