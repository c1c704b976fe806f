/** Conversations: the list beside the open one. Narrow screens show one of the two. */
import { Chat } from "../../chat/Chat";
import "../../chat/chat.css";
import { NewConversation } from "../../chat/NewConversation";
import { SessionList } from "../../chat/SessionList";

export default function Conversations({ id }: { id: string }) {
    return (
        <div class={id === "" ? "conversations" : "conversations open"}>
            <SessionList current={id} />
            {id === "" ? <NewConversation /> : <Chat key={id} id={id} />}
        </div>
    );
}
