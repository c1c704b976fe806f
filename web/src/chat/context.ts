/** The conversation that the components below belong to. */
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Conversation } from "./conversation";

export const Current = createContext<Conversation | null>(null);

export function useConversation(): Conversation {
    const conversation = useContext(Current);
    if (conversation === null) throw new Error("a conversation was expected around this component");
    return conversation;
}
