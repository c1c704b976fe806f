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

/** `820 B`, `3.4 kB`, `1.2 MB`. */
export function size(bytes: number): string {
    if (bytes < 1000) return `${bytes} B`;
    if (bytes < 1_000_000) return `${(bytes / 1000).toFixed(1)} kB`;
    return `${(bytes / 1_000_000).toFixed(1)} MB`;
}

/** What stands beside an event's name: the words of it that tell most. */
export function gist(words: string): string {
    const line = words.replace(/\s+/g, " ").trim();
    return line.length > 120 ? `${line.slice(0, 119)}…` : line;
}
