/** AG-UI on the wire: its requests, a thread's runs, and the moments of their events. Source: AG-UI 1.0, "Events". */

import { ask } from "../api/client";
import { type HttpAdapter, lastEventId, objectsOf, type Place, uuid } from "./adapter";
import {
    type Frame,
    type Json,
    type JsonObject,
    type Moment,
    Ordinals,
    Pieces,
    moment,
    objectOf,
    parsed,
    textOf,
} from "./frames";
import { type SseFrame, SseParser } from "./sse";

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

function aguiMoments(frames: readonly Frame[]): Moment[] {
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

/** The messages that `connect` sends first. It does not wait for a run in progress. */
async function snapshot(path: string, body: unknown, signal: AbortSignal): Promise<readonly JsonObject[]> {
    const response = await ask("POST", path, { body, signal });
    const reader = response.body?.getReader();
    const parser = new SseParser();
    const decoder = new TextDecoder();
    for (;;) {
        const read = await reader?.read();
        if (read === undefined || read.done) return [];
        for (const frame of parser.feed(decoder.decode(read.value, { stream: true }))) {
            const event = objectOf(JSON.parse(frame.data) as Json);
            if (event["type"] !== "MESSAGES_SNAPSHOT") continue;
            void reader?.cancel();
            return objectsOf(event["messages"]);
        }
    }
}

const pathOf = (place: Place): string => `/ag-ui/${encodeURIComponent(place.agent)}`;

export const agui: HttpAdapter = {
    name: "AG-UI",
    transport: "/ag-ui · SSE",
    moments: aguiMoments,
    history: (place) => {
        const path = `${pathOf(place)}/connect`;
        const body = { threadId: place.session, runId: "look", protocolVersion: "1.0", messages: [] };
        return { path, body, items: (signal) => snapshot(path, body, signal) };
    },
    message: (place, text) => ({
        path: pathOf(place),
        body: {
            protocolVersion: "1.0",
            threadId: place.session,
            runId: uuid(),
            messages: [{ id: uuid(), role: "user", content: text }],
            tools: [],
            context: [],
            forwardedProps: {},
        },
        headers: { "x-run-on-disconnect": "continue" },
    }),
    stream: {
        resume: (place, after) => ({
            path: `${pathOf(place)}/threads/${place.session}/events`,
            headers: lastEventId(after),
        }),
        before: (frame) => {
            const parts = frame.id.split("-");
            return [...parts.slice(0, -1), Number(parts.at(-1)) - 1].join("-");
        },
        frame: aguiFrame,
        isEnd: isAguiEnd,
    },
};
