/**
 * Parses UI schema 2.0. Pure. Unknown nodes are skipped: renderers show `content` or `label`, or nothing.
 * Source: the run service, A.8.
 */

export type Status = "info" | "success" | "warning" | "error" | "pending";

export type Action =
    | { type: "navigation"; path: string; params?: Record<string, unknown> }
    | { type: "url"; url: string }
    | { type: "event"; name: string; payload?: unknown }
    | { type: "tool"; tool: string; args: Record<string, unknown> }
    | { type: "copy"; text: string }
    | { type: "payload"; payload: unknown };

/** A node of any type. Members that several types share are read by name. */
export interface Node {
    readonly type: string;
    readonly id?: string;
    readonly status?: Status;
    readonly children: readonly Node[];
    readonly members: Readonly<Record<string, unknown>>;
}

export interface Tree {
    readonly status: Status;
    readonly theme: "default" | "light" | "dark";
    readonly locale: string;
    readonly root: Node;
}

const STATUSES: readonly Status[] = ["info", "success", "warning", "error", "pending"];
/** The server's own limits on depth and node count. Schemas from other sources are truncated here. */
const LEVELS = 8;
const NODES = 200;

/** The tree of a `ui_schema`; null if it is not valid. */
export function readTree(value: unknown): Tree | null {
    if (!isObject(value)) return null;
    const left = { nodes: NODES };
    const root = readNode("root" in value ? value["root"] : value, 1, left);
    if (root === null) return null;
    return {
        status: oneOf(value["status"], STATUSES) ?? "info",
        theme: oneOf(value["theme"], ["default", "light", "dark"]) ?? "default",
        locale: text(value["locale"]) || "en",
        root,
    };
}

function readNode(value: unknown, level: number, left: { nodes: number }): Node | null {
    if (!isObject(value) || level > LEVELS || left.nodes-- <= 0) return null;
    const children = Array.isArray(value["children"]) ? (value["children"] as unknown[]) : [];
    const status = oneOf(value["status"], STATUSES);
    return {
        type: text(value["type"]),
        ...(typeof value["id"] === "string" && { id: value["id"] }),
        ...(status && { status }),
        children: children.map((child) => readNode(child, level + 1, left)).filter((child) => child !== null),
        members: value,
    };
}

/** The action of a button; null if it is unknown. */
export function readAction(value: unknown): Action | null {
    if (!isObject(value)) return null;
    switch (value["type"]) {
        case "navigation":
            return typeof value["path"] === "string"
                ? {
                      type: "navigation",
                      path: value["path"],
                      ...(isObject(value["params"]) && { params: value["params"] }),
                  }
                : null;
        case "url":
            return isLink(value["url"]) ? { type: "url", url: value["url"] } : null;
        case "event":
            return typeof value["name"] === "string"
                ? { type: "event", name: value["name"], payload: value["payload"] }
                : null;
        case "tool":
            return typeof value["tool"] === "string" && isObject(value["args"])
                ? { type: "tool", tool: value["tool"], args: value["args"] }
                : null;
        case "copy":
            return typeof value["text"] === "string" ? { type: "copy", text: value["text"] } : null;
        case "payload":
            return { type: "payload", payload: value["payload"] };
        default:
            return null;
    }
}

/** A link that may be opened: https only. */
export const isLink = (value: unknown): value is string =>
    typeof value === "string" && /^https:\/\/[^\s]+$/.test(value);

/** An image that needs no request. */
export const isInlinePicture = (value: unknown): value is string =>
    typeof value === "string" && /^data:image\/(png|jpeg|gif|webp|avif);base64,[A-Za-z0-9+/=]+$/.test(value);

export const text = (value: unknown): string => (typeof value === "string" ? value : "");

export const isObject = (value: unknown): value is Record<string, unknown> =>
    typeof value === "object" && value !== null && !Array.isArray(value);

export function oneOf<T extends string>(value: unknown, choices: readonly T[]): T | null {
    return choices.find((each) => each === value) ?? null;
}
