/** A function like the global `fetch`. */
export type Fetch = typeof globalThis.fetch;

/** A chat on the server. */
export interface Chat {
    /** The address of the agent, as the transport has it: `http://HOST:8000/ai-sdk/AGENT`. */
    api: string;
    /** The chat's id, as `useChat` has it. */
    id: string;
    headers?: HeadersInit;
    fetch?: Fetch;
}

/**
 * A `fetch` for the transport, with which `stop()` also stops the run on the server, for everybody who watches it.
 *
 * It is the signal of a request that tells a stop from a page that is left or a connection that is lost: those do not
 * stop the run. A stop before the answer begins is not lost, and the next message waits until the server knows of it.
 * A stream that was resumed is only left: call `stopChat` for it.
 *
 * @param fetch sends the requests; the global one by default.
 */
export declare function stoppingFetch(fetch?: Fetch): Fetch;

/**
 * Stop a chat's run, whoever started it. Calls that wait are cancelled.
 *
 * @returns whether there was anything to stop.
 * @throws Error if the server refuses or cannot be reached.
 */
export declare function stopChat(chat: Chat): Promise<boolean>;

/**
 * The messages of a chat for `useChat({ messages })`, none if there is no such chat. What an active run says is left
 * out: `resume` streams it.
 *
 * @throws Error if the server refuses or cannot be reached.
 */
export declare function loadMessages<Message>(chat: Chat): Promise<Message[]>;

/** For the transport's `prepareSendMessagesRequest`: sends the newest message alone, because the server has the others. */
export declare function onlyNewest<Message>(options: {
    id: string;
    messages: Message[];
    trigger: string;
    messageId: string | undefined;
    body?: object;
}): { body: { id: string; messages: Message[]; trigger: string; messageId: string | undefined } };
