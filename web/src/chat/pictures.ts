/**
 * Pictures of a conversation. Blade tells of them in words alone; AAP's history holds them, so they are looked for there,
 * once for a conversation, and only when one is in sight.
 */
import { api } from "../api/client";
import type { Conversation } from "./conversation";
import type { Turn } from "./wire";

interface Message {
    role: string;
    content: string | { type: string; url?: string }[];
}

type Pictures = Record<"user" | "assistant", string[][]>;

const SHOWN = /^(data:image\/(png|jpeg|gif|webp);|blob:|https?:)/i;
const fetched = new WeakMap<Conversation, Promise<Pictures>>();

/** The address of a turn's n-th picture; null when it cannot be had. */
export async function pictureOf(conversation: Conversation, turn: Turn, n: number): Promise<string | null> {
    if (turn.role === "system") return null;
    const sent = conversation.sent.get(turn.turn_id)?.filter((part) => part.type === "image_url")[n];
    if (sent?.type === "image_url") return shown(sent.image_url.url);
    let all = fetched.get(conversation);
    if (all === undefined) fetched.set(conversation, (all = picturesOf(conversation.id)));
    const place = conversation.entries
        .peek()
        .map((entry) => entry.turn.peek())
        .filter((each) => each.role === turn.role && each.blocks.some((block) => block.attachment?.kind === "image"))
        .findIndex((each) => each.turn_id === turn.turn_id);
    return shown((await all)[turn.role][place]?.[n]);
}

/** Pictures that came since: what was fetched is not all any more. */
export const forgetPictures = (conversation: Conversation): void => void fetched.delete(conversation);

const shown = (url: string | undefined): string | null => (url !== undefined && SHOWN.test(url) ? url : null);

/** The pictures of all messages that have some. */
async function picturesOf(session: string): Promise<Pictures> {
    let messages: Message[] = [];
    try {
        const path = `/aap/v3/sessions/${session}/history`;
        messages = (await api.get<{ history: { full: Message[] } }>(path, { type: "full" })).history.full;
    } catch {
        // AAP is not served, or the agent keeps no history there: the note stands for the picture.
    }
    const of = (role: string): string[][] =>
        messages
            .filter((each) => each.role === role && Array.isArray(each.content))
            .map((each) => (each.content as { type: string; url?: string }[]).flatMap((part) => part.url ?? []))
            .filter((urls) => urls.length > 0);
    return { user: of("user"), assistant: of("assistant") };
}
