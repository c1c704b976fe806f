/** Blade's socket for the lens: a session's events, as the packets that came. */
import { io, type Socket } from "socket.io-client";
import { key } from "../api/key";
import type { State } from "./follow";
import { bladeFrame } from "./blade";
import type { Frame } from "./frames";

interface Ack {
    status: string;
    message?: string;
}

export interface Listening {
    readonly session: string;
    readonly onFrame: (frame: Frame) => void;
    readonly onBytes: (count: number) => void;
    readonly onState: (state: State, error: unknown) => void;
}

export class BladeSocket {
    private readonly socket: Socket;
    private seen = 0;

    constructor(private readonly listening: Listening) {
        const base = new URL("./", document.baseURI);
        this.socket = io(base.origin, {
            path: `${base.pathname}socket.io/`,
            auth: { token: key.value ?? "-" },
            forceNew: true,
            reconnectionDelayMax: 8_000,
        });
        const { onState } = listening;
        onState("opening", null);
        this.socket.io.on("open", () => this.socket.io.engine.on("packet", (packet) => this.take(packet)));
        this.socket.on("connect", () => void this.subscribe());
        this.socket.on("connect_error", (error) => onState(this.socket.active ? "opening" : "failed", error));
        this.socket.on("disconnect", () => onState("opening", null));
    }

    /** Send a message of the user's. @throws Error with the refusal's sentence. */
    async say(message: string): Promise<void> {
        const payload = { session_id: `sess_${this.listening.session}`, message };
        const ack = (await this.socket.timeout(30_000).emitWithAck("chat:send", payload)) as Ack;
        if (ack.status !== "ok") throw new Error(ack.message ?? ack.status);
    }

    close(): void {
        this.socket.disconnect();
    }

    /** From where this page is; else the newest chat from its beginning, which this server tells at any age. */
    private async subscribe(): Promise<void> {
        const asked = { session_id: `sess_${this.listening.session}`, after_sequence: this.seen || -1 };
        try {
            const ack = (await this.socket.timeout(30_000).emitWithAck("session:subscribe", asked)) as Ack;
            if (ack.status !== "ok") throw new Error(ack.message ?? ack.status);
            this.listening.onState("open", null);
        } catch (error) {
            this.listening.onState("failed", error);
        }
    }

    private take(packet: { type: string; data?: unknown }): void {
        if (packet.type !== "message" || typeof packet.data !== "string") return;
        const frame = bladeFrame(packet.data, performance.now());
        if (frame === null || frame.body["session_id"] !== `sess_${this.listening.session}`) return;
        const number = Number(frame.id);
        if (frame.id !== "" && number <= this.seen) return;
        this.seen = Math.max(this.seen, number);
        this.listening.onBytes(packet.data.length);
        this.listening.onFrame(frame);
    }
}
