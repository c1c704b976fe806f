/** The AI SDK's UI message stream on the wire: its requests, and the moments of its chunks. Source: AI SDK 6. */

import { jsonHistory, numberBefore, type Place, type RunAdapter, uuid } from "./adapter";
import { type Frame, type Moment, Ordinals, Pieces, moment, parsed, textOf } from "./frames";
import type { SseFrame } from "./sse";

function aisdkFrame(sse: SseFrame, at: number): Frame {
    const body = parsed(sse.data);
    return { protocol: "ai-sdk", raw: sse.raw, id: sse.id, name: textOf(body["type"]), body, at };
}

function isAisdkEnd(frame: Frame): boolean {
    return frame.name === "finish";
}

function aisdkMoments(frames: readonly Frame[]): Moment[] {
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

const pathOf = (place: Place): string => `/ai-sdk/${encodeURIComponent(place.agent)}`;

export const aisdk: RunAdapter = {
    name: "AI SDK",
    transport: "/ai-sdk · SSE",
    moments: aisdkMoments,
    history: (place) => jsonHistory(`${pathOf(place)}/${place.session}/messages`, (answer) => answer),
    message: (place, text) => ({
        path: pathOf(place),
        body: {
            id: place.session,
            messages: [{ id: uuid(), role: "user", parts: [{ type: "text", text }] }],
            trigger: "submit-message",
        },
        headers: {},
    }),
    stream: {
        resume: (place, after) => ({
            path: `${pathOf(place)}/${place.run ?? ""}/stream?startIndex=${Number(after ?? -1) + 1}`,
            headers: {},
        }),
        before: numberBefore,
        frame: aisdkFrame,
        isEnd: isAisdkEnd,
        needsRun: true,
    },
};
