/** Versions of messages: editing one, sending one again, and switching between them. The server loses none of them. */
import { type ReadonlySignal, signal } from "@preact/signals";
import { api, ask } from "../api/client";
import { dataUrl } from "../browser/files";
import { t } from "../i18n";
import { type Attachment, type Block, type Part, type SessionDetail, textOf, type Turn } from "./wire";

interface Checkpoint {
    checkpoint_id: string;
    turn_id: string;
}

/** The conversation that the messages belong to. */
interface Owner {
    readonly id: string;
    readonly detail: ReadonlySignal<SessionDetail | null>;
    readonly isWritable: ReadonlySignal<boolean>;
    readonly isRunning: ReadonlySignal<boolean>;
    readonly sending: ReadonlySignal<readonly Part[] | null>;
    readonly sent: ReadonlyMap<string, readonly Part[]>;
    has(turnId: string): boolean;
    branchShown(): Promise<void>;
    say(parts: readonly Part[]): Promise<void>;
}

/** A message that is being edited. It belongs to the conversation, so that scrolling away loses nothing. */
export interface Editing {
    turnId: string;
    text: string;
}

export class Versions {
    readonly editing = signal<Editing | null>(null);

    constructor(private readonly conversation: Owner) {}

    /** Whether the user may send messages of this conversation again now. */
    get isOpen(): boolean {
        const { detail, isWritable, isRunning, sending } = this.conversation;
        return detail.value !== null && isWritable.value && !isRunning.value && sending.value === null;
    }

    /** Whether a message can be sent again: the server, or this page, has all its attachments. */
    canRepeat(turn: Turn): boolean {
        return this.conversation.sent.has(turn.turn_id) || attachmentsOf(turn).every((each) => each.url !== undefined);
    }

    edit(turn: Turn): void {
        this.editing.value = { turnId: turn.turn_id, text: textOf(turn) };
    }

    /** Sends a message again, for another answer. */
    async retry(turn: Turn): Promise<void> {
        await this.resend(turn, await this.partsOf(turn));
    }

    /** Sends the edited text, with the attachments of the message, in its place. */
    async sendEdited(turn: Turn, text: string): Promise<void> {
        const kept = (await this.partsOf(turn)).filter((each) => each.type !== "text");
        await this.resend(turn, text === "" ? kept : [...kept, { type: "text", text }]);
        if (this.editing.peek()?.turnId === turn.turn_id) this.editing.value = null;
    }

    /** Shows the newest branch with another version of a message. */
    async show({ checkpoint_id, turn_id }: Checkpoint): Promise<void> {
        if (this.conversation.has(turn_id)) return; // another window was faster
        await this.branch("switch-branch", checkpoint_id);
    }

    /** Rewinds the conversation to before a message, and sends another one in its place. */
    private async resend(turn: Turn, parts: readonly Part[]): Promise<void> {
        const checkpoints = await api.get<Checkpoint[]>(`${this.path}/checkpoints`);
        const before = checkpoints.find((each) => each.turn_id === turn.turn_id);
        if (before !== undefined) await this.branch("rewind", before.checkpoint_id);
        try {
            await this.conversation.say(parts);
        } catch (error) {
            if (before !== undefined) await this.branch("switch-branch", before.checkpoint_id);
            throw error;
        }
    }

    /** Begins another branch, and resolves when it is shown. */
    private async branch(path: "rewind" | "switch-branch", checkpoint: string): Promise<void> {
        const shown = this.conversation.branchShown(); // its event may come before the answer
        await api.post(`${this.path}/${path}`, { checkpoint_id: checkpoint });
        await shown;
    }

    private async partsOf(turn: Turn): Promise<readonly Part[]> {
        const sent = this.conversation.sent.get(turn.turn_id);
        if (sent !== undefined) return sent;
        const parts = await Promise.all(attachmentsOf(turn).map(partOf));
        const text = textOf(turn);
        return text === "" ? parts : [...parts, { type: "text", text }];
    }

    private get path(): string {
        return `/api/sessions/${this.conversation.id}`;
    }
}

const attachmentsOf = (turn: Turn): Attachment[] =>
    turn.blocks.flatMap((block: Block) => (block.attachment === undefined ? [] : [block.attachment]));

/** An attachment as it was sent, from the server. */
async function partOf({ kind, name, media_type, url = "" }: Attachment): Promise<Part> {
    if (/^https?:/i.test(url)) return { type: "image_url", image_url: { url } };
    const content = await (await ask("GET", url)).blob().catch(() => null);
    if (content === null) throw new Error(t("chat.picture-gone"));
    const data = await dataUrl(content);
    if (kind === "image") return { type: "image_url", image_url: { url: data } };
    return { type: "file", name: name ?? media_type ?? kind, data: data.slice(data.indexOf(",") + 1) };
}
