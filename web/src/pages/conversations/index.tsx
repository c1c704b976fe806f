/** Conversations: the list beside the open one. Narrow screens show one of the two. */
import { useLayoutEffect, useRef } from "preact/hooks";
import { Chat } from "../../chat/Chat";
import "../../chat/chat.css";
import { NewConversation } from "../../chat/NewConversation";
import { SessionList } from "../../chat/SessionList";
import type { Part } from "../../chat/wire";

export default function Conversations({ id }: { id: string }) {
    const begun = useRef<{ id: string; first: readonly Part[] } | null>(null);
    useLayoutEffect(() => {
        if (begun.current?.id !== id) begun.current = null; // the message may be another one when the user returns
    }, [id]);
    return (
        <div class={id === "" ? "conversations" : "conversations open"}>
            <SessionList current={id} />
            {id === "" ? (
                <NewConversation onBegin={(id, first) => (begun.current = { id, first })} />
            ) : (
                <Chat key={id} id={id} first={begun.current?.id === id ? begun.current.first : null} />
            )}
        </div>
    );
}
