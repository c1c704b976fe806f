/**
 * Images of a conversation. Blade returns only their names, so they are fetched from AAP's history: once per conversation,
 * and only when an image is shown.
 */
import { api } from "../api/client";
import type { Part, Turn } from "./wire";

interface Message {
    role: string;
    content: string | { type: string; url?: string }[];
}

/** For each role, the image URLs of every message that has images. */
type ImagesByRole = Record<"user" | "assistant", string[][]>;

const SAFE_URL = /^(data:image\/(png|jpeg|gif|webp);|blob:|https?:)/i;

export class Pictures {
    private fetched: Promise<ImagesByRole> | null = null;

    constructor(
        private readonly session: string,
        /** Messages sent by this page, by turn ID. */
        private readonly sent: ReadonlyMap<string, readonly Part[]>,
    ) {}

    /** The URL of a turn's n-th image, among all turns of the conversation; null if it is not available. */
    async urlOf(turn: Turn, n: number, turns: readonly Turn[]): Promise<string | null> {
        if (turn.role === "system") return null;
        const part = this.sent.get(turn.turn_id)?.filter((each) => each.type === "image_url")[n];
        if (part?.type === "image_url") return safe(part.image_url.url);
        this.fetched ??= fetchImages(this.session);
        const place = turns
            .filter(
                (each) => each.role === turn.role && each.blocks.some((block) => block.attachment?.kind === "image"),
            )
            .findIndex((each) => each.turn_id === turn.turn_id);
        return safe((await this.fetched)[turn.role][place]?.[n]);
    }

    /** Fetches again next time, because new messages may have images. */
    invalidate(): void {
        this.fetched = null;
    }
}

const safe = (url: string | undefined): string | null => (url !== undefined && SAFE_URL.test(url) ? url : null);

async function fetchImages(session: string): Promise<ImagesByRole> {
    let messages: Message[] = [];
    try {
        const path = `/aap/v3/sessions/${session}/history`;
        messages = (await api.get<{ history: { full: Message[] } }>(path, { type: "full" })).history.full;
    } catch {
        // AAP is not available or has no history for this agent: the image's name is shown instead.
    }
    const of = (role: string): string[][] =>
        messages
            .filter((each) => each.role === role && Array.isArray(each.content))
            .map((each) => (each.content as { type: string; url?: string }[]).flatMap((part) => part.url ?? []))
            .filter((urls) => urls.length > 0);
    return { user: of("user"), assistant: of("assistant") };
}
