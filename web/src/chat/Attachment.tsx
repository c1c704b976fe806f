/** An image or a file of a message. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Icon } from "../components/Icon";
import { Picture } from "../components/Picture";
import { size, t } from "../i18n";
import { useConversation } from "./context";
import { Value } from "./Value";
import type { Attachment, Turn } from "./wire";

const MAX_BRIEF_LENGTH = 160;

interface Props {
    attachment: Attachment;
    note: string;
    /** The turn that the attachment belongs to. */
    turn: Turn;
}

export function AttachmentChip({ attachment, note, turn }: Props) {
    const conversation = useConversation();
    const picture = useSignal<string | null>(null);
    const place = turn.blocks
        .filter((block) => block.attachment?.kind === "image")
        .findIndex((block) => block.attachment === attachment);
    useEffect(() => {
        if (attachment.kind !== "image") return;
        const turns = conversation.entries.peek().map((entry) => entry.turn.peek());
        void conversation.pictures.urlOf(turn, place, turns).then((url) => (picture.value = url));
    }, [turn.turn_id, turn.status]);
    const name = attachment.name ?? attachment.media_type ?? note;
    if (picture.value !== null && /^https?:/i.test(picture.value)) {
        return (
            <a class="attachment" href={picture.value} target="_blank" rel="noopener noreferrer nofollow">
                <Icon name="picture" />
                <span class="grow">{t("chat.picture-elsewhere", { name: picture.value })}</span>
            </a>
        );
    }
    if (picture.value !== null) {
        return <Picture url={picture.value} name={attachment.name ?? t("chat.picture")} />;
    }
    if (attachment.data !== undefined) {
        return (
            <div class="call">
                <details>
                    <summary>
                        <Icon name="chevron" />
                        <Icon name="file" />
                        <span class="call-name">{t("chat.data")}</span>
                        <span class="call-brief">{JSON.stringify(attachment.data).slice(0, MAX_BRIEF_LENGTH)}</span>
                        <span class="call-state">{size(attachment.size)}</span>
                    </summary>
                    <div class="call-body">
                        <Value label={t("chat.data")} value={attachment.data} />
                    </div>
                </details>
            </div>
        );
    }
    return (
        <span class="attachment">
            <Icon name={attachment.kind === "image" ? "picture" : "file"} />
            <span class="grow">{name}</span>
            {attachment.size > 0 && <span class="soft">{size(attachment.size)}</span>}
        </span>
    );
}
