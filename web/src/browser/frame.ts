/** Work that is collected and done once per frame. */

/** The longest time that work waits for a frame, because browsers paint none for a covered page. */
const MAX_DELAY_MS = 120;

export class NextFrame {
    private waiting: { animationFrame: number; timer: number } | null = null;

    constructor(private readonly work: () => void) {}

    /** Does the work with the next frame, or after `MAX_DELAY_MS`. */
    schedule(): void {
        if (this.waiting !== null) return;
        const run = (): void => {
            this.cancel();
            this.work();
        };
        this.waiting = {
            animationFrame: requestAnimationFrame(run),
            timer: window.setTimeout(run, MAX_DELAY_MS),
        };
    }

    cancel(): void {
        if (this.waiting === null) return;
        cancelAnimationFrame(this.waiting.animationFrame);
        clearTimeout(this.waiting.timer);
        this.waiting = null;
    }
}
