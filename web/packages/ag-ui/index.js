import { HttpAgent, runHttpRequest, transformHttpEventStream } from "@ag-ui/client";
import { catchError, concat, defer, EMPTY, filter, firstValueFrom, retry, tap, throwError, timer } from "rxjs";

const DEFAULT_RECONNECT_FOR_MS = 60_000;
const FIRST_DELAY_MS = 250;
const LONGEST_DELAY_MS = 5_000;
const RUN_ENDS = new Set(["RUN_FINISHED", "RUN_ERROR"]);
/** What a proxy answers while the server restarts, and the server while it starts and stops. */
const UNAVAILABLE = new Set([502, 503, 504]);

/** An `HttpAgent` for Dragoman; `index.d.ts` documents its members. It has no private fields: `clone` would lose them. */
export class DragomanAgent extends HttpAgent {
    constructor({ reconnectForMs = DEFAULT_RECONNECT_FOR_MS, ...config }) {
        super({ ...config, fetch: withQuietBodies(config.fetch ?? ((url, init) => fetch(url, init))) });
        this.reconnectForMs = reconnectForMs;
    }

    requestInit(input) {
        const init = super.requestInit(input);
        const own = { "X-Run-On-Disconnect": "continue", "X-Message-History": "complete" };
        return { ...init, headers: { ...init.headers, ...own } };
    }

    /** A repeated request gets the same stream again: what was seen of it is left out. */
    run(input) {
        this.activeRunId = input.runId;
        let seen = 0;
        const attempt = () => {
            let position = 0;
            return untilEnd(this, super.run(input)).pipe(
                filter(() => ++position > seen),
                tap(() => (seen = position)),
            );
        };
        return defer(attempt).pipe(retry({ delay: backoff(this), resetOnSuccess: true }));
    }

    connect(input) {
        const request = () => this.fetch(`${this.url}/connect`, this.requestInit(input));
        const events = transformHttpEventStream(runHttpRequest(request), this.debugLogger);
        return untilEnd(this, events).pipe(
            tap((event) => event.type === "RUN_STARTED" && (this.activeRunId = event.runId)),
            catchError((error) => {
                if (error.status === 404) return EMPTY; // a thread without messages
                if (!mayReconnect(this, error)) throw error;
                this.connectionError = error;
                return EMPTY;
            }),
        );
    }

    /** Every attempt begins with the whole thread, so nothing has to be left out. */
    async connectAgent(parameters, subscriber) {
        this.abortController = new AbortController();
        const delay = backoff(this);
        for (let attempt = 1; ; attempt++) {
            this.connectionError = undefined;
            const result = await super.connectAgent(parameters, subscriber);
            if (this.connectionError === undefined) return result;
            await firstValueFrom(delay(this.connectionError, attempt));
        }
    }

    abortRun() {
        const runId = this.activeRunId;
        super.abortRun();
        if (runId !== undefined) this.stop(runId).catch(() => {}); // without a connection there is nobody to tell
    }

    async stop(runId) {
        const response = await this.fetch(`${this.url}/stop/${encodeURIComponent(this.threadId)}`, {
            method: "POST",
            headers: { ...this.headers, "Content-Type": "application/json" },
            body: JSON.stringify(runId === undefined ? {} : { runId }),
        });
        if (!response.ok) throw new Error(`the run could not be stopped: HTTP ${response.status}`);
        return (await response.json()).stopped;
    }

    clone() {
        const copy = super.clone();
        copy.reconnectForMs = this.reconnectForMs;
        return copy;
    }
}

/** The events of a run, and an error if they end before it does. */
function untilEnd(agent, events) {
    let isOver = false;
    const noted = tap((event) => {
        if (!RUN_ENDS.has(event.type)) return;
        isOver = true;
        agent.activeRunId = undefined;
    });
    const lost = defer(() => (isOver ? EMPTY : throwError(() => new Error("the connection to the server was lost"))));
    return concat(events.pipe(noted), lost);
}

/** How long to wait before each attempt; fails when it is time to give up. */
function backoff(agent) {
    let since;
    return (error, attempt) => {
        if (attempt === 1) since = Date.now();
        if (!mayReconnect(agent, error) || Date.now() - since > agent.reconnectForMs) return throwError(() => error);
        return timer(Math.min(FIRST_DELAY_MS * 2 ** (attempt - 1), LONGEST_DELAY_MS));
    };
}

function mayReconnect(agent, error) {
    const isNetwork = error.status === undefined || UNAVAILABLE.has(error.status);
    return isNetwork && agent.reconnectForMs > 0 && !agent.abortController.signal.aborted;
}

/**
 * A broken connection ends a body instead of failing it: whether the run was over is known from its events, and the
 * official client would leave a rejected promise behind that nobody can handle.
 */
function withQuietBodies(send) {
    return async (url, init) => {
        const response = await send(url, init);
        if (!response.ok || response.body === null) return response;
        const reader = response.body.getReader();
        const body = new ReadableStream({
            async pull(controller) {
                try {
                    const { done, value } = await reader.read();
                    if (done) controller.close();
                    else controller.enqueue(value);
                } catch (error) {
                    if (init.signal?.aborted) controller.error(error);
                    else controller.close();
                }
            },
            cancel: (reason) => reader.cancel(reason).catch(() => {}),
        });
        return new Response(body, {
            status: response.status,
            statusText: response.statusText,
            headers: response.headers,
        });
    };
}
