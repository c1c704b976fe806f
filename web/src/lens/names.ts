/** What the protocols are called, and where they are on this server. */
import type { Protocol } from "./frames";

export const NAMES: Record<Protocol, string> = {
    aap: "AAP",
    "ag-ui": "AG-UI",
    agentscope: "AgentScope",
    blade: "Blade",
};

/** How each of them comes over the line. */
export const CARRIERS: Record<Protocol, string> = {
    aap: "/aap/v3 · SSE",
    "ag-ui": "/ag-ui · SSE",
    agentscope: "/process · SSE",
    blade: "/socket.io · Socket.IO",
};

/** What stands beside an event's name: the words of it that tell most. */
export function gist(words: string): string {
    const line = words.replace(/\s+/g, " ").trim();
    return line.length > 120 ? `${line.slice(0, 119)}…` : line;
}
