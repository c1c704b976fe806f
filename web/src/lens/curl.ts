/**
 * Commands that read the same events again. Pure. They run unchanged in a POSIX shell. The key appears as
 * `$DRAGOMAN_KEY`, so that it is never copied by accident.
 */

import type { Place } from "./adapter";
import { HTTP_ADAPTERS } from "./adapters";
import type { Frame, Protocol } from "./frames";

/** Quotes a text for a POSIX shell. */
export function quoted(text: string): string {
    return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** The command that reads a protocol's stream, from its beginning or from a frame on. */
export function curlOf(protocol: Protocol, place: Place, from: Frame | null): string {
    if (protocol === "blade") return bladeCurl(place, Number(from?.id ?? 0) - 1 || -1);
    const { stream } = HTTP_ADAPTERS[protocol];
    const { path, headers } = stream.resume(place, from === null ? null : stream.before(from));
    const sent = Object.entries(headers).map(([name, value]) => ` -H ${quoted(`${name}: ${value}`)}`);
    return `curl -sN${keyOf(place)}${sent.join("")} ${quoted(place.server + path)}`;
}

/** The command for a request. */
export function curlRequest(place: Place, method: string, path: string, body: unknown = null): string {
    const how = method === "GET" || (method === "POST" && body !== null) ? "" : ` -X ${method}`;
    const what = body === null ? "" : ` -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}`;
    return `curl -sN${how}${keyOf(place)}${what} ${quoted(place.server + path)}`;
}

const keyOf = (place: Place) => (place.hasKey ? ' -H "Authorization: Bearer $DRAGOMAN_KEY"' : "");

/** Socket.IO over HTTP polling: open, connect with the key, subscribe after a sequence number, poll. */
function bladeCurl(place: Place, after: number): string {
    const url = `${place.server}/socket.io/?EIO=4&transport=polling`;
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
