/** Blade's socket for the lens: a session's events as raw packets. */
import { io, type Socket } from "socket.io-client";
import { credential } from "../api/key";
import type { State } from "./follow";
import { bladeFrame } from "./blade";
import type { Frame } from "./frames";

interface Ack {
    status: string;
    message?: string;
}

export interface BladeSocketOptions {
    readonly session: string;
    readonly onFrame: (frame: Frame) => void;
    readonly onBytes: (count: number) => void;
    readonly onState: (state: State, error: unknown) => void;
}

export class BladeSocket {
    private readonly socket: Socket;
    private lastSequence = 0;

    constructor(private readonly options: BladeSocketOptions) {
        const base = new URL("./", document.baseURI);
        this.socket = io(base.origin, {
            path: `${base.pathname}socket.io/`,
            auth: (resolve) => resolve({ token: credential() ?? "-" }),
            forceNew: true,
            reconnectionDelayMax: 8_000,
        });
        const { onState } = options;
        onState("opening", null);
        this.socket.io.on("open", () => this.socket.io.engine.on("packet", (packet) => this.receive(packet)));
        this.socket.on("connect", () => void this.subscribe());
        this.socket.on("connect_error", (error) => onState(this.socket.active ? "opening" : "failed", error));
        this.socket.on("disconnect", () => onState("opening", null));
    }

    /** Sends a message as the user. @throws Error with the server's message. */
    async say(message: string): Promise<void> {
        const payload = { session_id: `sess_${this.options.session}`, message };
        const ack = (await this.socket.timeout(30_000).emitWithAck("chat:send", payload)) as Ack;
        if (ack.status !== "ok") throw new Error(ack.message ?? ack.status);
    }

    close(): void {
        this.socket.disconnect();
    }

    /** Resumes from the last packet, or replays the newest chat from its beginning. */
    private async subscribe(): Promise<void> {
        const subscription = { session_id: `sess_${this.options.session}`, after_sequence: this.lastSequence || -1 };
        try {
            const ack = (await this.socket.timeout(30_000).emitWithAck("session:subscribe", subscription)) as Ack;
            if (ack.status !== "ok") throw new Error(ack.message ?? ack.status);
            this.options.onState("open", null);
        } catch (error) {
            this.options.onState("failed", error);
        }
    }

    private receive(packet: { type: string; data?: unknown }): void {
        if (packet.type !== "message" || typeof packet.data !== "string") return;
        const frame = bladeFrame(packet.data, performance.now());
        if (frame === null || frame.body["session_id"] !== `sess_${this.options.session}`) return;
        const number = Number(frame.id);
        if (frame.id !== "" && number <= this.lastSequence) return;
        this.lastSequence = Math.max(this.lastSequence, number);
        this.options.onBytes(packet.data.length);
        this.options.onFrame(frame);
    }
}
