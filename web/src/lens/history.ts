/** A session's history, as each protocol returns it. */
import { api, ask } from "../api/client";
import { bareId, curlRequest, type Place } from "./curl";
import { type Json, type JsonObject, objectOf, type Protocol, textOf } from "./frames";
import { SseParser } from "./sse";

export interface History {
    readonly items: readonly JsonObject[];
    readonly curl: string;
}

const all = (value: Json | undefined): readonly JsonObject[] => (Array.isArray(value) ? value.map(objectOf) : []);

/** @throws ApiError when the server does not serve the protocol. */
export async function fetchHistory(protocol: Protocol, place: Place, signal: AbortSignal): Promise<History> {
    const { session, agent, response } = place;
    switch (protocol) {
        case "aap": {
            const path = `/aap/v3/sessions/${session}/history?type=full`;
            const body = await api.get<{ history: { full: Json } }>(path, {}, signal);
            return { items: all(body.history.full), curl: curlRequest(place, "GET", path) };
        }
        case "ag-ui": {
            const path = `/ag-ui/${encodeURIComponent(agent)}/connect`;
            const body = { threadId: session, runId: "look", protocolVersion: "1.0", messages: [] };
            return { items: await snapshot(path, body, signal), curl: curlRequest(place, "POST", path, body) };
        }
        case "agentscope": {
            const path = `/process/responses/${encodeURIComponent(response ?? "")}`;
            const body = response === null ? { output: [] } : await api.get<JsonObject>(path, {}, signal);
            return { items: all(body.output), curl: curlRequest(place, "GET", path) };
        }
        case "blade": {
            const path = `/api/sessions/sess_${session}/messages`;
            return { items: all(await api.get<Json>(path, {}, signal)), curl: curlRequest(place, "GET", path) };
        }
        case "openai": {
            const path = `/v1/conversations/conv_${bareId(session)}/items?order=asc&limit=100`;
            const body = await api.get<JsonObject>(path, {}, signal);
            return { items: all(body["data"]), curl: curlRequest(place, "GET", path) };
        }
        case "ai-sdk": {
            const path = `/ai-sdk/${encodeURIComponent(agent)}/${session}/messages`;
            return { items: all(await api.get<Json>(path, {}, signal)), curl: curlRequest(place, "GET", path) };
        }
        case "a2a": {
            const query = `contextId=${session}&includeArtifacts=true&A2A-Version=1.0`;
            const path = `/a2a/${encodeURIComponent(agent)}/tasks?${query}`;
            const body = await api.get<JsonObject>(path, {}, signal);
            return { items: all(body["tasks"]).toReversed(), curl: curlRequest(place, "GET", path) };
        }
    }
}

/** The messages that `connect` sends first. It does not wait for a run in progress. */
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

/** The type of an item, in the protocol's own terms. */
export function kindOf(item: JsonObject): string {
    const names = [item["role"], item["kind"] ?? item["type"]].map(textOf).filter((each) => each !== "");
    return names.join(" · ");
}

/** The text of an item, wherever the protocol puts it. */
export function plainText(value: Json | undefined): string {
    if (typeof value === "string") return value;
    if (Array.isArray(value))
        return value
            .map(plainText)
            .filter((each) => each !== "")
            .join(" ");
    if (typeof value !== "object" || value === null) return "";
    const item = objectOf(value);
    for (const name of [
        "text",
        "thinking",
        "content",
        "blocks",
        "data",
        "summary",
        "parts",
        "history",
        "output",
        "name",
        "toolCalls",
        "function",
    ]) {
        const text = plainText(item[name]);
        if (text !== "") return text;
    }
    return "";
}
