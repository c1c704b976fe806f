/** Requests that overlap: the answer to an older one must not replace what is newer. */

export interface Ticket {
    /** Whether no later request has begun, and nothing newer is known. */
    isCurrent(): boolean;
    /** Ends the request. Returns whether its answer is newer than what is known: nothing has ended or outdated it. */
    settle(): boolean;
}

/** Numbers the requests for one thing. */
export class Latest {
    private begun = 0;
    /** The newest request that has ended, or is outdated. */
    private settled = 0;

    /** Whether an answer is to come that would be newer than what is known. */
    get isPending(): boolean {
        return this.settled < this.begun;
    }

    begin(): Ticket {
        const number = ++this.begun;
        return {
            isCurrent: () => number === this.begun && number > this.settled,
            settle: () => {
                if (number <= this.settled) return false;
                this.settled = number;
                return true;
            },
        };
    }

    /** Something newer is known than what all requests that have begun will answer. */
    outdate(): void {
        this.settled = this.begun;
    }
}
