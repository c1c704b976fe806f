/** Unsent messages by conversation, for as long as the page is open. */
import { signal } from "@preact/signals";
import { key } from "../api/key";
import type { Draft } from "./Composer";

const drafts = new Map<string, Draft>();
key.subscribe(() => drafts.clear());

export function draftOf(id: string): Draft {
    let draft = drafts.get(id);
    if (draft === undefined) drafts.set(id, (draft = { text: signal(""), attached: signal([]) }));
    return draft;
}
