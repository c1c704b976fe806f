/** `index.d.ts` documents what is exported. */

export function stoppingFetch(send = (url, init) => fetch(url, init)) {
    let stopping = Promise.resolve();
    return async (url, init) => {
        const signal = init?.signal;
        // The signal of a GET also fires when the page resumes once more: that must not stop what it resumes.
        if (init?.method !== "POST" || !signal) return send(url, init);
        await stopping; // a stop that is overtaken by this request would stop its run
        signal.throwIfAborted();
        const connection = new AbortController();
        const answer = send(url, { ...init, signal: connection.signal });
        const stop = async () => {
            const response = await answer; // until then there may be no run to stop
            connection.abort();
            const chat = response.headers.get("x-dragoman-session");
            if (!response.ok || chat === null) return;
            await send(addressOf(url, chat, "stop"), { ...init, body: undefined, signal: undefined, keepalive: true });
        };
        return new Promise((resolve, reject) => {
            const onAbort = () => {
                reject(signal.reason);
                stopping = stop().catch(() => {}); // without a connection there is nobody to tell
            };
            signal.addEventListener("abort", onAbort, { once: true });
            answer.then(resolve, reject);
        });
    };
}

export async function stopChat(chat) {
    return (await ask(chat, "stop", "POST")).stopped;
}

export async function loadMessages(chat) {
    return ask(chat, "messages", "GET");
}

export function onlyNewest({ id, messages, trigger, messageId, body }) {
    return { body: { ...body, id, messages: messages.slice(-1), trigger, messageId } };
}

async function ask({ api, id, headers, fetch: send = (url, init) => fetch(url, init) }, action, method) {
    const response = await send(addressOf(api, id, action), { method, headers });
    if (!response.ok) throw new Error((await response.text()) || `HTTP ${response.status}`);
    return response.json();
}

/** An endpoint of a chat, below an address that may have a query. */
function addressOf(api, id, action) {
    const [path, ...query] = String(api).split("?");
    return [`${path}/${encodeURIComponent(id)}/${action}`, ...query].join("?");
}
