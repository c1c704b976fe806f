/** A session's conversation as each protocol gives it back to whoever asks later. */
import { api, ask } from "../api/client";
import { curlRequest, type Place } from "./curl";
import { type Json, type JsonObject, objectOf, type Protocol, textOf } from "./frames";
import { SseParser } from "./sse";

export interface Kept {
    readonly items: readonly JsonObject[];
    readonly curl: string;
}

const all = (value: Json | undefined): readonly JsonObject[] => (Array.isArray(value) ? value.map(objectOf) : []);

/** @throws ApiError where this server does not speak the protocol. */
export async function kept(protocol: Protocol, place: Place, signal: AbortSignal): Promise<Kept> {
    const { session, agent, response } = place;
    switch (protocol) {
        case "aap": {
            const path = `/aap/v3/sessions/${session}/history?type=full`;
            const told = await api.get<{ history: { full: Json } }>(path, {}, signal);
            return { items: all(told.history.full), curl: curlRequest(place, "GET", path) };
        }
        case "ag-ui": {
            const path = `/ag-ui/${encodeURIComponent(agent)}/connect`;
            const body = { threadId: session, runId: "look", protocolVersion: "1.0", messages: [] };
            return { items: await snapshot(path, body, signal), curl: curlRequest(place, "POST", path, body) };
        }
        case "agentscope": {
            const path = `/process/responses/${encodeURIComponent(response ?? "")}`;
            const told = response === null ? { output: [] } : await api.get<JsonObject>(path, {}, signal);
            return { items: all(told.output), curl: curlRequest(place, "GET", path) };
        }
        case "blade": {
            const path = `/api/sessions/sess_${session}/messages`;
            return { items: all(await api.get<Json>(path, {}, signal)), curl: curlRequest(place, "GET", path) };
        }
    }
}

/** What `connect` tells first: all messages. A run that goes on is not waited for. */
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
            return all(event["messages"]);
        }
    }
}

/** What an item is, in the protocol's own words. */
export function kindOf(item: JsonObject): string {
    const words = [item["role"], item["kind"] ?? item["type"]].map(textOf).filter((each) => each !== "");
    return words.join(" · ");
}

/** The words in it, wherever the protocol puts them. */
export function wordsOf(value: Json | undefined): string {
    if (typeof value === "string") return value;
    if (Array.isArray(value))
        return value
            .map(wordsOf)
            .filter((each) => each !== "")
            .join(" ");
    if (typeof value !== "object" || value === null) return "";
    const item = objectOf(value);
    for (const name of ["text", "thinking", "content", "blocks", "data", "output", "name", "toolCalls", "function"]) {
        const words = wordsOf(item[name]);
        if (words !== "") return words;
    }
    return "";
}
