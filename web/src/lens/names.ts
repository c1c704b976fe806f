/** The protocols' names and paths. */
import type { Protocol } from "./frames";

export const NAMES: Record<Protocol, string> = {
    aap: "AAP",
    "ag-ui": "AG-UI",
    agentscope: "AgentScope",
    blade: "Blade",
    openai: "OpenAI",
    "ai-sdk": "AI SDK",
    a2a: "A2A",
};

/** The path and transport of each protocol. */
export const TRANSPORTS: Record<Protocol, string> = {
    aap: "/aap/v3 · SSE",
    "ag-ui": "/ag-ui · SSE",
    agentscope: "/process · SSE",
    blade: "/socket.io · Socket.IO",
    openai: "/v1/responses · SSE",
    "ai-sdk": "/ai-sdk · SSE",
    a2a: "/a2a · SSE",
};

/** The text shown beside an event's name, on one line. */
export function oneLine(text: string): string {
    const line = text.replace(/\s+/g, " ").trim();
    return line.length > 120 ? `${line.slice(0, 119)}…` : line;
}
