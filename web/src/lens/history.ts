/** The items of a session's history, whichever protocol has returned them. */
import { type Json, type JsonObject, objectOf, textOf } from "./frames";

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
