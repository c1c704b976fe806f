/**
 * The Agent API on the wire: its requests, and which moments a response's events belong to.
 * Source: AgentScope Runtime, "Agent API".
 */

import { jsonHistory, lastEventId, numberBefore, type RunAdapter } from "./adapter";
import { type Frame, type Moment, Ordinals, Pieces, moment, objectOf, parsed, textOf } from "./frames";
import type { SseFrame } from "./sse";

function agentscopeFrame(sse: SseFrame, at: number): Frame {
    const body = parsed(sse.data);
    const name = `${textOf(body["object"])} ${textOf(body["status"])}`;
    return { protocol: "agentscope", raw: sse.raw, id: textOf(body["sequence_number"]), name, body, at };
}

export function agentscopeResponse(frames: readonly Frame[]): string | null {
    const id = frames[0]?.body["object"] === "response" ? frames[0].body["id"] : null;
    return typeof id === "string" ? id : null;
}

function isAgentscopeEnd(frame: Frame): boolean {
    const { object, status } = frame.body;
    return object === "response" && ["completed", "failed", "canceled"].includes(textOf(status));
}

/** The moment of each message, which follows from its content: a call, its result or a plan. */
function abouts(frames: readonly Frame[]): Map<string, Moment> {
    const moments = new Map<string, Moment>();
    const ordinals = new Ordinals();
    const types = new Map<string, string>();
    for (const { body } of frames) {
        if (body["object"] === "message") types.set(textOf(body["id"]), textOf(body["type"]));
        if (body["object"] !== "content") continue;
        const message = textOf(body["msg_id"]);
        if (moments.has(message)) continue;
        const data = objectOf(body["data"]);
        const type = types.get(message) ?? "";
        if (type.endsWith("_output"))
            moments.set(message, moment("result", textOf(data["call_id"]), textOf(data["output"])));
        else if (type.endsWith("_call"))
            moments.set(message, moment("call", textOf(data["call_id"]), textOf(data["name"])));
        else if (type === "mcp_approval_request")
            moments.set(message, moment("call", textOf(data["id"]), textOf(data["name"])));
        else if ("plan" in data) moments.set(message, ordinals.next("plan"));
        else if (body["type"] !== "text") moments.set(message, ordinals.next("block", textOf(body["type"])));
    }
    return moments;
}

function agentscopeMoments(frames: readonly Frame[]): Moment[] {
    const about = abouts(frames);
    const pieces = new Pieces();
    const notes = new Ordinals();
    const kinds = new Map<string, "text" | "thinking">();
    const closed = new Map<string, Moment>();
    return frames.map((frame) => {
        const { body } = frame;
        const status = textOf(body["status"]);
        switch (body["object"]) {
            case "response":
                return isAgentscopeEnd(frame) ? moment("end", "", status) : moment("start");
            case "message": {
                const id = textOf(body["id"]);
                const kind = body["type"] === "reasoning" ? "thinking" : "text";
                kinds.set(id, kind);
                const known = about.get(id) ?? closed.get(id);
                if (known !== undefined) return known;
                if (body["type"] === "heartbeat") return notes.next("note", "heartbeat");
                return pieces.upcoming(kind, "root");
            }
            case "content": {
                const id = textOf(body["msg_id"]);
                const known = about.get(id);
                if (known !== undefined) return known;
                const kind = kinds.get(id) ?? "text";
                if (body["delta"] === true) return pieces.next(kind, "root", textOf(body["text"]));
                const end = pieces.closed(kind, "root");
                closed.set(id, end);
                return end;
            }
            default:
                return notes.next("note", frame.name);
        }
    });
}

export const agentscope: RunAdapter = {
    name: "AgentScope",
    transport: "/process · SSE",
    moments: agentscopeMoments,
    history: ({ response }) => {
        const path = `/process/responses/${encodeURIComponent(response ?? "")}`;
        if (response === null) return { path, items: () => Promise.resolve([]) };
        return jsonHistory(path, (answer) => objectOf(answer)["output"]);
    },
    message: ({ session }, text) => ({
        path: "/process",
        body: { session_id: session, input: [{ role: "user", content: [{ type: "text", text }] }] },
        headers: {},
    }),
    stream: {
        resume: ({ session, response }, after) => ({
            path:
                response === null
                    ? `/process/sessions/${session}/events`
                    : `/process/responses/${encodeURIComponent(response)}/events`,
            headers: lastEventId(after),
        }),
        before: numberBefore,
        frame: agentscopeFrame,
        isEnd: isAgentscopeEnd,
        needsRun: false,
    },
};
