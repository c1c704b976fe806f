/** Loads a list for events, which may come faster than anybody reads it. */

/** The shortest time between two loads, unless the user asks for one. */
const INTERVAL_MS = 1_000;

export class Throttle {
    private ranAt = -Infinity;
    private timer = 0;

    constructor(private readonly load: () => Promise<void>) {}

    /** Loads now, in place of a load that was still to come. */
    async now(): Promise<void> {
        this.cancel();
        this.ranAt = performance.now();
        await this.load();
    }

    /** Loads as soon as the last load is `INTERVAL_MS` ago: once, however often this is called meanwhile. */
    soon(): void {
        if (this.timer !== 0) return;
        const delay = Math.max(0, this.ranAt + INTERVAL_MS - performance.now());
        this.timer = window.setTimeout(() => void this.now(), delay);
    }

    cancel(): void {
        clearTimeout(this.timer);
        this.timer = 0;
    }
}
