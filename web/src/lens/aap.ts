/** AAP on the wire: its requests, and which moments a turn's frames belong to. Source: AAP v3, "Stream events". */

import { jsonHistory, lastEventId, type RunAdapter } from "./adapter";
import { type Frame, type Moment, Ordinals, Pieces, moment, objectOf, parsed, textOf } from "./frames";
import type { SseFrame } from "./sse";

function aapFrame(sse: SseFrame, at: number): Frame {
    return { protocol: "aap", raw: sse.raw, id: sse.id, name: sse.event, body: parsed(sse.data), at };
}

/** The turn's ID, which only its first frame contains. */
export function aapTurn(frames: readonly Frame[]): string | null {
    const meta = frames[0]?.name === "turn_start" ? frames[0].body["_meta"] : undefined;
    const id = typeof meta === "object" && meta !== null && "turnId" in meta ? meta.turnId : null;
    return typeof id === "string" ? id : null;
}

function aapMoments(frames: readonly Frame[]): Moment[] {
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

export const aap: RunAdapter = {
    name: "AAP",
    transport: "/aap/v3 · SSE",
    moments: aapMoments,
    history: ({ session }) =>
        jsonHistory(
            `/aap/v3/sessions/${session}/history?type=full`,
            (answer) => objectOf(objectOf(answer)["history"])["full"],
        ),
    message: ({ session }, text) => ({
        path: `/aap/v3/sessions/${session}/turns`,
        body: { stream: "delta", messages: [{ role: "user", content: text }] },
        headers: {},
    }),
    stream: {
        resume: ({ session, turn }, after) => ({
            path: `/aap/v3/sessions/${session}/events?stream=delta${turn === null ? "" : `&turn=${turn}`}`,
            headers: lastEventId(after ?? "0"),
        }),
        before: (frame) => String(Math.max(0, Number(frame.id) - 1)),
        frame: aapFrame,
        isEnd: (frame) => frame.name === "turn_stop",
        needsRun: false,
    },
};
