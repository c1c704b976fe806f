import { HttpAgent, type HttpAgentConfig } from "@ag-ui/client";

export interface DragomanAgentConfig extends HttpAgentConfig {
    /** How long to try after a connection was lost, in milliseconds; 60,000 by default, 0 for never. */
    reconnectForMs?: number;
}

/**
 * An `HttpAgent` for Dragoman.
 *
 * - `connectAgent()` shows the whole thread, as the server has it, and joins its active run.
 * - A run whose connection is lost goes on, here and on the server: the missing events follow.
 * - `abortRun()` stops the run on the server, for everybody who watches it.
 */
export declare class DragomanAgent extends HttpAgent {
    constructor(config: DragomanAgentConfig);

    reconnectForMs: number;

    /**
     * Stop a run of the thread. Without `runId` all of them, and what waits for an answer.
     *
     * @returns whether there was a run to stop.
     * @throws Error if the server refuses or cannot be reached.
     */
    stop(runId?: string): Promise<boolean>;

    clone(): DragomanAgent;
}
