/**
 * Commands that read the same events again. Pure. They run unchanged in a POSIX shell. The key appears as
 * `$DRAGOMAN_KEY`, so that it is never copied by accident.
 */

import { beforeA2a } from "./a2a";
import { type Frame, type Protocol, textOf } from "./frames";

export interface Place {
    /** The server's address, without a trailing slash. */
    readonly server: string;
    readonly hasKey: boolean;
    readonly agent: string;
    readonly session: string;
    /** The run's ID, as AAP names its turns. */
    readonly turn: string | null;
    /** The ID of AgentScope's response. */
    readonly response: string | null;
    /** The run's own ID, once it is known. */
    readonly run: string | null;
}

/** A UUID as OpenAI's API names runs and sessions. */
export const bareId = (uuid: string): string => uuid.replaceAll("-", "");

export const PATHS = {
    aap: (place: Place) =>
        `/aap/v3/sessions/${place.session}/events?stream=delta${place.turn === null ? "" : `&turn=${place.turn}`}`,
    "ag-ui": (place: Place) => `/ag-ui/${encodeURIComponent(place.agent)}/threads/${place.session}/events`,
    agentscope: (place: Place) =>
        place.response === null
            ? `/process/sessions/${place.session}/events`
            : `/process/responses/${encodeURIComponent(place.response)}/events`,
    blade: () => "/socket.io/?EIO=4&transport=polling",
    openai: (place: Place, after = -1) =>
        `/v1/responses/resp_${bareId(place.run ?? "")}?stream=true${after < 0 ? "" : `&starting_after=${after}`}`,
    "ai-sdk": (place: Place, after = -1) =>
        `/ai-sdk/${encodeURIComponent(place.agent)}/${place.run ?? ""}/stream?startIndex=${after + 1}`,
    a2a: (place: Place) => `/a2a/${encodeURIComponent(place.agent)}/tasks/${place.run ?? ""}:subscribe?A2A-Version=1.0`,
};

/** Quotes a text for a POSIX shell. */
export function quoted(text: string): string {
    return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** The command that reads a protocol's stream, from its beginning or from a frame on. */
export function curlOf(protocol: Protocol, place: Place, from: Frame | null): string {
    if (protocol === "blade") return bladeCurl(place, Number(from?.id ?? 0) - 1 || -1);
    if (protocol === "openai" || protocol === "ai-sdk") {
        return `curl -sN${keyOf(place)} ${quoted(place.server + PATHS[protocol](place, Number(from?.id ?? 0) - 1))}`;
    }
    const seen = from === null ? beginningOf(protocol) : before(protocol, from);
    const headers = seen === null ? "" : ` -H ${quoted(`Last-Event-ID: ${seen}`)}`;
    return `curl -sN${keyOf(place)}${headers} ${quoted(place.server + PATHS[protocol](place))}`;
}

/** The command for a request. */
export function curlRequest(place: Place, method: string, path: string, body: unknown = null): string {
    const how = method === "GET" || (method === "POST" && body !== null) ? "" : ` -X ${method}`;
    const what = body === null ? "" : ` -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}`;
    return `curl -sN${how}${keyOf(place)}${what} ${quoted(place.server + path)}`;
}

const keyOf = (place: Place) => (place.hasKey ? ' -H "Authorization: Bearer $DRAGOMAN_KEY"' : "");

function beginningOf(protocol: Protocol): string | null {
    return protocol === "aap" || protocol === "a2a" ? "0" : null;
}

/** The position just before a frame, in the protocol's own form. */
function before(protocol: Protocol, frame: Frame): string | null {
    switch (protocol) {
        case "ag-ui": {
            const parts = frame.id.split("-");
            return [...parts.slice(0, -1), Number(parts.at(-1)) - 1].join("-");
        }
        case "agentscope":
            return String(Number(textOf(frame.id)) - 1);
        case "a2a":
            return beforeA2a(frame);
        default:
            return String(Math.max(0, Number(frame.id) - 1));
    }
}

/** Socket.IO over HTTP polling: open, connect with the key, subscribe after a sequence number, poll. */
function bladeCurl(place: Place, after: number): string {
    const url = place.server + PATHS.blade();
    const subscribe = ["session:subscribe", { session_id: `sess_${place.session}`, after_sequence: after }];
    const connect = place.hasKey ? `'40{"token":"'"$DRAGOMAN_KEY"'"}'` : `'40{"token":"-"}'`;
    return [
        `U="${url}&sid=$(curl -s ${quoted(url)} | sed 's/.*"sid":"\\([^"]*\\)".*/\\1/')"`,
        `curl -s "$U" -d ${connect} >/dev/null`,
        `curl -s "$U" >/dev/null`,
        `curl -s "$U" -d ${quoted(`42${JSON.stringify(subscribe)}`)} >/dev/null`,
        `curl -s "$U" | tr '\\036' '\\n'`,
    ].join("; ");
}
