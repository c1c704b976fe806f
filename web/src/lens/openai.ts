/** OpenAI Responses on the wire: its requests, and the moments of a response's events. Source: OpenAI, "Responses". */

import { bareId, jsonHistory, numberBefore, type RunAdapter } from "./adapter";
import { called, type Frame, type Moment, Ordinals, Pieces, moment, objectOf, parsed, textOf } from "./frames";
import type { SseFrame } from "./sse";

const ENDS = ["response.completed", "response.incomplete", "response.failed"];
const IMAGE = /^!\[image\]\(\S+\)$/;

function openaiFrame(sse: SseFrame, at: number): Frame {
    const body = parsed(sse.data);
    const name = textOf(body["type"]).replace(/^response\./, "");
    return { protocol: "openai", raw: sse.raw, id: textOf(body["sequence_number"]), name, body, at };
}

function isOpenaiEnd({ body }: Frame): boolean {
    return ENDS.includes(textOf(body["type"]));
}

/** The session's call that an ID names: `call_RUN_CALL`, whose CALL is the UUID in base64. */
function callOf(id: string): string | null {
    const encoded = /^(?:call|mcpr)_[0-9a-f]{32}_([\w-]{22})$/.exec(id)?.[1];
    if (encoded === undefined) return null;
    const bytes = atob(encoded.replaceAll("-", "+").replaceAll("_", "/"));
    const hex = [...bytes].map((byte) => byte.charCodeAt(0).toString(16).padStart(2, "0")).join("");
    return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

function openaiMoments(frames: readonly Frame[]): Moment[] {
    const pieces = new Pieces();
    const ordinals = new Ordinals();
    const counts = new Map<string, number>();
    /** The call of each item, its kind of text, and images, by the item's ID. */
    const calls = new Map<string, string>();
    const kinds = new Map<string, "text" | "thinking">();
    const images = new Map<string, Moment>();

    const opened = (item: Frame["body"]): void => {
        const name = textOf(item["name"]);
        const asked = textOf(item["approval_request_id"]);
        const known = callOf(textOf(item["call_id"]) || asked || textOf(item["id"]));
        const place = (counts.get(name) ?? 0) + 1;
        if (asked === "") counts.set(name, place);
        calls.set(textOf(item["id"]), known ?? called(name, place));
    };

    return frames.map((frame) => {
        const { name, body } = frame;
        const item = objectOf(body["item"]);
        const id = textOf(body["item_id"]) || textOf(item["id"]);
        if (isOpenaiEnd(frame)) return moment("end", "", textOf(objectOf(body["response"])["status"]));
        if (name === "created" || name === "in_progress") return moment("start");
        if (name === "output_item.added") {
            if (item["type"] === "message") kinds.set(id, "text");
            else if (item["type"] === "reasoning") kinds.set(id, "thinking");
            else opened(item);
        }
        const kind = kinds.get(id);
        const call = calls.get(id);
        if (kind !== undefined) {
            if (name.endsWith(".delta")) {
                const text = textOf(body["delta"]);
                if (!IMAGE.test(text)) return pieces.next(kind, "root", text);
                images.set(`${id} ${textOf(body["content_index"])}`, ordinals.next("block", text));
            }
            const image = images.get(`${id} ${textOf(body["content_index"])}`);
            if (image !== undefined) return image;
            return name.endsWith(".added") ? pieces.upcoming(kind, "root") : pieces.closed(kind, "root");
        }
        if (call === undefined) return ordinals.next("note", name);
        const isResult = item["type"] === "mcp_call" && name === "output_item.done";
        if (isResult || name === "mcp_call.completed" || name === "mcp_call.failed") {
            return moment("result", call, textOf(item["output"]) || textOf(objectOf(item["error"])["content"]));
        }
        return moment("call", call, textOf(item["name"]));
    });
}

export const openai: RunAdapter = {
    name: "OpenAI",
    transport: "/v1/responses · SSE",
    moments: openaiMoments,
    history: ({ session }) =>
        jsonHistory(
            `/v1/conversations/conv_${bareId(session)}/items?order=asc&limit=100`,
            (answer) => objectOf(answer)["data"],
        ),
    message: ({ agent, session }, text) => ({
        path: "/v1/responses",
        body: {
            model: agent,
            input: text,
            conversation: `conv_${bareId(session)}`,
            stream: true,
            background: true,
        },
        headers: {},
    }),
    stream: {
        resume: ({ run }, after) => {
            const number = Number(after ?? -1);
            const start = number < 0 ? "" : `&starting_after=${number}`;
            return { path: `/v1/responses/resp_${bareId(run ?? "")}?stream=true${start}`, headers: {} };
        },
        before: numberBefore,
        frame: openaiFrame,
        isEnd: isOpenaiEnd,
        needsRun: true,
    },
};
