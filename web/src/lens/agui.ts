/** AG-UI on the wire: a thread's log, its runs and the moments of their events. Pure. Source: AG-UI 1.0, "Events". */

import { type Frame, type Moment, Ordinals, Pieces, moment, objectOf, parsed, textOf } from "./frames";
import type { SseFrame } from "./sse";

export function aguiFrame(sse: SseFrame, at: number): Frame {
    const body = parsed(sse.data);
    return { protocol: "ag-ui", raw: sse.raw, id: sse.id, name: textOf(body["type"]), body, at };
}

/** The message IDs in a run's events, which are the same in every protocol. */
export function aguiMessages(run: readonly Frame[]): string[] {
    return run.map((frame) => textOf(frame.body["messageId"]).split(":")[0] ?? "").filter((id) => id !== "");
}

/** The user's message at the beginning of a run. */
export function userMessage(run: readonly Frame[]): string {
    const user = run.find((frame) => frame.name === "TEXT_MESSAGE_START" && frame.body["role"] === "user");
    const id = user?.body["messageId"];
    const deltas = run.filter((frame) => frame.name === "TEXT_MESSAGE_CONTENT" && frame.body["messageId"] === id);
    return user === undefined ? "" : deltas.map((frame) => textOf(frame.body["delta"])).join("");
}

export function isAguiEnd(frame: Frame): boolean {
    return frame.name === "RUN_FINISHED" || frame.name === "RUN_ERROR";
}

export function aguiMoments(frames: readonly Frame[]): Moment[] {
    const pieces = new Pieces();
    const ordinals = new Ordinals();
    const users = new Map<string, Moment>();
    const stages = new Map<string, Moment>();
    return frames.map(({ name, body }) => {
        const message = textOf(body["messageId"]);
        const call = textOf(body["toolCallId"]);
        const loop = textOf(body["subagentRunId"]) || "root";
        const text = textOf(body["delta"]);
        switch (name) {
            case "RUN_STARTED":
                return moment("start");
            case "RUN_FINISHED":
                return moment("end", "", textOf(objectOf(body["outcome"])["type"]));
            case "RUN_ERROR":
                return moment("end", "", textOf(body["code"]));
            case "TEXT_MESSAGE_START":
                if (body["role"] !== "user") return pieces.upcoming("text", loop);
                users.set(message, ordinals.next("user"));
                return users.get(message) ?? moment("user");
            case "TEXT_MESSAGE_CONTENT": {
                const user = users.get(message);
                return user === undefined ? pieces.next("text", loop, text) : { ...user, text };
            }
            case "TEXT_MESSAGE_END":
                return users.get(message) ?? pieces.closed("text", loop);
            case "REASONING_START":
            case "REASONING_MESSAGE_START":
                return pieces.upcoming("thinking", loop);
            case "REASONING_MESSAGE_CONTENT":
                return pieces.next("thinking", loop, text);
            case "REASONING_MESSAGE_END":
            case "REASONING_END":
                return pieces.closed("thinking", loop);
            case "TOOL_CALL_START":
                return moment("call", call, textOf(body["toolCallName"]));
            case "TOOL_CALL_ARGS":
            case "TOOL_CALL_END":
                return moment("call", call);
            case "TOOL_CALL_RESULT":
                return moment("result", call, textOf(body["content"]));
            case "SUBAGENT_STARTED":
                return moment("subagent", loop, textOf(body["description"]) || textOf(body["name"]));
            case "SUBAGENT_FINISHED":
            case "SUBAGENT_ERROR":
                return moment("subagent", `${loop}:end`);
            case "ACTIVITY_SNAPSHOT":
                return ordinals.next("plan");
            case "CUSTOM":
                return ordinals.next(body["name"] === "dragoman.ui_schema" ? "card" : "block", textOf(body["name"]));
            case "STEP_STARTED":
            case "STEP_FINISHED": {
                const stage = textOf(body["stepName"]);
                const known = stages.get(`${name} ${stage}`) ?? ordinals.next("note", stage);
                return known;
            }
            default:
                return ordinals.next("note", name);
        }
    });
}
