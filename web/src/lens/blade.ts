/** Blade on the wire: Socket.IO packets, their moments, and the history. Source: Blade, sections 6 and 7. */

import { type Adapter, jsonHistory } from "./adapter";
import {
    type Frame,
    type Json,
    type JsonObject,
    type Moment,
    Ordinals,
    Pieces,
    moment,
    objectOf,
    textOf,
} from "./frames";

/** The frame of a Socket.IO packet, `2["turn:patch",{…}]`; null if it is not an event. */
export function bladeFrame(packet: string, at: number): Frame | null {
    if (!packet.startsWith("2[")) return null;
    let event: Json;
    try {
        event = JSON.parse(packet.slice(1)) as Json;
    } catch {
        return null;
    }
    if (!Array.isArray(event) || typeof event[0] !== "string") return null;
    const body = objectOf(event[1] as Json);
    const type = textOf(body["patch_type"]);
    const name = type === "" ? event[0] : `${event[0]} ${type}`;
    return { protocol: "blade", raw: `4${packet}`, id: textOf(body["stream_sequence"]), name, body, at };
}

export const HISTORY = "turn (history)";

/** A turn of the history, for runs whose events Blade does not replay. */
export function bladeTurnFrame(turn: JsonObject, at: number): Frame {
    return { protocol: "blade", raw: JSON.stringify(turn), id: "", name: HISTORY, body: turn, at };
}

/** The run ID in a chat's events. */
export function bladeRun(frame: Frame): string | null {
    const id = frame.body["chat_run_id"];
    return typeof id === "string" ? id.replace(/^chat_/, "") : null;
}

const bare = (id: Json | undefined) => textOf(id).replace(/^(tc|perm|ask\d+|turn|sess|entry)_/, "");
const loopOf = (body: JsonObject) => textOf(body["loop_id"]).replace(/^fork:(tc_)?/, "") || "root";

function bladeMoments(frames: readonly Frame[]): Moment[] {
    const pieces = new Pieces();
    const ordinals = new Ordinals();
    const users = new Map<string, Moment>();
    const loops = new Set(["root"]);
    const patched = frames.map((frame) =>
        frame.name.startsWith("turn:patch") ? patch(frame.body, pieces, ordinals) : null,
    );
    return frames.map(({ name, body }, index) => {
        const known = patched[index];
        if (known) return known;
        const turn = textOf(body["turn_id"]);
        switch (name) {
            case "chat:start":
                return moment("start");
            case "chat:end":
                return moment("end", "", textOf(body["status"]));
            case "system:error":
                return moment("end", "", textOf(body["code"]));
            case "turn:start":
            case "turn:end":
            case HISTORY: {
                if (body["role"] === "user") {
                    const user = users.get(turn) ?? ordinals.next("user", plainText(body));
                    users.set(turn, user);
                    return user;
                }
                const loop = loopOf(body);
                if (name === "turn:start" && !loops.has(loop)) {
                    loops.add(loop);
                    return moment("subagent", loop);
                }
                // A turn opens with its first patch and belongs to the same moment.
                const first =
                    name === "turn:start"
                        ? frames.findIndex((each, at) => at > index && each.body["turn_id"] === body["turn_id"])
                        : -1;
                return patched[first] ?? moment("step", bare(turn));
            }
            default:
                return ordinals.next("note", name);
        }
    });
}

function patch(body: JsonObject, pieces: Pieces, ordinals: Ordinals): Moment {
    const data = objectOf(body["data"]);
    const loop = loopOf(body);
    const call = bare(data["tool_call_id"]);
    switch (body["patch_type"]) {
        case "add_content":
            if (data["type"] === "text" || data["type"] === "thinking") {
                return "text_delta" in data
                    ? pieces.next(data["type"], loop, textOf(data["text_delta"]))
                    : ordinals.next("block", textOf(data["content"]));
            }
            if (data["type"] === "plan_status") return ordinals.next("plan");
            return call === "" ? ordinals.next("note", textOf(data["type"])) : moment("result", call);
        case "add_tool_call":
            return moment(
                "call",
                bare(data["id"]),
                /^(perm|ask\d+)_/.test(textOf(data["id"])) ? "" : textOf(data["tool_name"]),
            );
        case "set_tool_status":
            return moment("call", call);
        case "tool_result":
            return moment("result", call, textOf(data["result"]));
        default:
            return moment("step", bare(body["turn_id"]));
    }
}

function plainText(turn: JsonObject): string {
    const blocks = Array.isArray(turn["blocks"]) ? (turn["blocks"] as readonly Json[]) : [];
    return blocks
        .map((block) => objectOf(block)["content"])
        .filter((content) => typeof content === "string")
        .join("");
}

/** Messages and events go over the socket. */
export const blade: Adapter = {
    name: "Blade",
    transport: "/socket.io · Socket.IO",
    moments: bladeMoments,
    history: ({ session }) => jsonHistory(`/api/sessions/sess_${session}/messages`, (answer) => answer),
};
