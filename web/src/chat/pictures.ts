/**
 * Pictures in what the user said. Blade tells of them in words alone; AAP's history holds them, so they are looked for
 * there, once for a conversation, and only when one is in sight.
 */
import { api } from "../api/client";
import type { Conversation } from "./conversation";
import type { Turn } from "./wire";

interface Message {
    role: string;
    content: string | { type: string; url?: string }[];
}

const SHOWN = /^(data:image\/(png|jpeg|gif|webp)|blob:)/i;
const fetched = new WeakMap<Conversation, Promise<string[][]>>();

/** A picture of a user's turn: the n-th one; null when it cannot be had. */
export async function pictureOf(conversation: Conversation, turn: Turn, n: number): Promise<string | null> {
    const sent = conversation.sent.get(turn.turn_id)?.filter((part) => part.type === "image_url")[n];
    if (sent?.type === "image_url") return shown(sent.image_url.url);
    let all = fetched.get(conversation);
    if (all === undefined) fetched.set(conversation, (all = picturesOf(conversation.id)));
    const turns = conversation.entries
        .peek()
        .map((entry) => entry.turn.peek())
        .filter((each) => each.blocks.some((block) => block.attachment?.kind === "image") && each.role === "user");
    const place = turns.findIndex((each) => each.turn_id === turn.turn_id);
    return shown((await all)[place]?.[n]);
}

const shown = (url: string | undefined): string | null => (url !== undefined && SHOWN.test(url) ? url : null);

/** The pictures of all user messages that have some. */
async function picturesOf(session: string): Promise<string[][]> {
    try {
        const told = await api.get<{ history: { full: Message[] } }>(`/aap/v3/sessions/${session}/history`, {
            type: "full",
        });
        return told.history.full
            .filter((each) => each.role === "user" && Array.isArray(each.content))
            .map((each) => (each.content as { type: string; url?: string }[]).flatMap((part) => part.url ?? []))
            .filter((urls) => urls.length > 0);
    } catch {
        return []; // AAP is not served, or the agent keeps no history there: the note stands for the picture
    }
}
