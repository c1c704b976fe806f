/** The server's agents, and the options for a new conversation. */
import { api } from "../api/client";
import { ApiError } from "../api/errors";
import { bare, type Solution } from "./wire";

export interface Option {
    type: "text" | "secret" | "select";
    name: string;
    title?: string;
    description?: string;
    default: string;
    options?: string[];
}

export interface Agent {
    name: string;
    title?: string;
    description?: string;
    tools?: { name: string; description: string }[];
    options?: Option[];
    /** `embeddedModel`: its answers come from the small model that is only for trying out the server. */
    _meta?: { starters?: string[]; model?: string; embeddedModel?: boolean };
}

/** Agents with their options from AAP; without AAP only their names. */
export async function agents(signal?: AbortSignal): Promise<Agent[]> {
    try {
        return (await api.get<{ agents: Agent[] }>("/aap/v3/meta", undefined, signal)).agents;
    } catch (error) {
        if (!(error instanceof ApiError && error.status === 404)) throw error;
    }
    const { items } = await api.get<{ items: Solution[] }>("/api/solutions", undefined, signal);
    return items.map(({ id, name, description }) => ({ name: id, title: name, description }));
}

/** Creates a session. Options left at their defaults are not sent. */
export async function create(
    agent: Agent,
    options: Readonly<Record<string, string>>,
    memory: boolean,
): Promise<string> {
    const chosen = Object.fromEntries(
        (agent.options ?? [])
            .map(({ name, default: usual }) => [name, options[name] ?? usual, usual] as const)
            .filter(([, value, usual]) => value !== usual)
            .map(([name, value]) => [name, value]),
    );
    // An agent may ignore memories: the server decides.
    const body = { solution_id: agent.name, memory_enabled: memory ? null : false, options: chosen };
    return bare((await api.post<{ session_id: string }>("/api/sessions", body)).session_id);
}
