/** A2A on the wire: its requests, and which moments the updates of a task belong to. Source: A2A 1.0, "Streaming". */

import { jsonHistory, lastEventId, objectsOf, type Place, type RunAdapter, uuid } from "./adapter";
import { type Frame, type Moment, Ordinals, Pieces, moment, objectOf, parsed, textOf } from "./frames";
import type { SseFrame } from "./sse";

const ACTIVE = ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"];

const stateOf = ({ body }: Frame): string => textOf(objectOf(objectOf(body["statusUpdate"])["status"])["state"]);

function a2aFrame(sse: SseFrame, at: number): Frame {
    const body = parsed(sse.data);
    const frame = { protocol: "a2a", raw: sse.raw, id: sse.id, name: Object.keys(body)[0] ?? "", body, at } as const;
    return { ...frame, name: `${frame.name} ${stateOf(frame).replace("TASK_STATE_", "")}`.trim() };
}

/** Whether the stream ends here: the task is over, or waits for somebody. */
function isA2aEnd(frame: Frame): boolean {
    return "statusUpdate" in frame.body && !ACTIVE.includes(stateOf(frame));
}

/** The position before a frame. Positions are those of the log: an event, and the pieces of text after it. */
function beforeA2a(frame: Frame): string {
    const [event = 0, pieces = 0] = frame.id.split(".").map(Number);
    return pieces > 0 ? `${event}.${pieces - 1}` : `${event - 1}.999999999`;
}

function a2aMoments(frames: readonly Frame[]): Moment[] {
    const pieces = new Pieces();
    const ordinals = new Ordinals();
    return frames.map((frame) => {
        if (isA2aEnd(frame)) return moment("end", "", stateOf(frame));
        const update = objectOf(frame.body["artifactUpdate"]);
        const parts = objectOf(update["artifact"])["parts"];
        const part = objectOf(Array.isArray(parts) ? parts[0] : undefined);
        if (!("artifactUpdate" in frame.body)) return moment("start");
        if (!("text" in part)) return ordinals.next("block");
        return update["lastChunk"] === true && part["text"] === ""
            ? pieces.closed("text", "root")
            : pieces.next("text", "root", textOf(part["text"]));
    });
}

const tasksOf = (place: Place): string => `/a2a/${encodeURIComponent(place.agent)}`;

export const a2a: RunAdapter = {
    name: "A2A",
    transport: "/a2a · SSE",
    moments: a2aMoments,
    history: (place) =>
        jsonHistory(
            `${tasksOf(place)}/tasks?contextId=${place.session}&includeArtifacts=true&A2A-Version=1.0`,
            (answer) => objectsOf(objectOf(answer)["tasks"]).toReversed(),
        ),
    message: (place, text) => ({
        path: `${tasksOf(place)}/message:stream?A2A-Version=1.0`,
        body: { message: { messageId: uuid(), role: "ROLE_USER", contextId: place.session, parts: [{ text }] } },
        headers: {},
    }),
    stream: {
        resume: (place, after) => ({
            path: `${tasksOf(place)}/tasks/${place.run ?? ""}:subscribe?A2A-Version=1.0`,
            headers: lastEventId(after ?? "0"),
        }),
        before: beforeA2a,
        frame: a2aFrame,
        isEnd: isA2aEnd,
        needsRun: true,
    },
};
