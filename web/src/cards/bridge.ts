/**
 * The page that holds the console, if it allows one: who it is, and how actions are offered to it.
 *
 * Actions go to one origin by name, never to "*", and only after the reader has allowed that origin in this window.
 * The server decides who may hold the console at all (`frame-ancestors`, its setting `cors_origins`).
 */
import { signal } from "@preact/signals";
import type { Action } from "./schema";

export interface BridgeAction {
    readonly action: string;
    readonly payload: unknown;
    /** With the block's type it names the action: hosts act once on each. */
    readonly toolCallId: string;
}

export interface Host {
    readonly window: Window;
    readonly origin: string;
}

const ALLOWED = "dragoman.host";

/** Whom the reader has allowed, for this window alone. */
export const allowed = signal<string | null>(stored());
/** What was offered since the page was opened, so that nothing is offered twice by itself. */
const offered = new Set<string>();

/** The page around this one, or the one that opened it; null when the console stands alone. */
export function hostOf(page: Window): Host | null {
    const holder = page.parent !== page ? page.parent : (page.opener as Window | null);
    const origin = page.location.ancestorOrigins?.[0] ?? originOf(page.document.referrer);
    if (holder === null || origin === null || origin === "null" || origin === page.location.origin) return null;
    return { window: holder, origin };
}

export function allow(host: Host): void {
    allowed.value = host.origin;
    try {
        sessionStorage.setItem(ALLOWED, host.origin);
    } catch {
        // It holds until the page is left.
    }
}

/** Send an action to the host. Whether it went. */
export function offer(action: BridgeAction, host: Host | null = hostOf(window)): boolean {
    if (host === null || allowed.value !== host.origin) return false;
    offered.add(action.toolCallId);
    host.window.postMessage({ type: "dragoman:action", ...action }, host.origin);
    return true;
}

/** Tell the host that the reader pressed something in an answer. Whether it was told. */
export function raise(action: Action, host: Host | null = hostOf(window)): boolean {
    if (host === null || allowed.value !== host.origin) return false;
    host.window.postMessage({ type: "dragoman:pressed", action }, host.origin);
    return true;
}

/** Offer what has just happened before the reader's eyes, once. What a history holds is never offered by itself. */
export function offerLive(action: BridgeAction): boolean {
    return offered.has(action.toolCallId) ? false : offer(action);
}

export const wasOffered = (toolCallId: string): boolean => offered.has(toolCallId);

function stored(): string | null {
    try {
        return sessionStorage.getItem(ALLOWED);
    } catch {
        return null;
    }
}

function originOf(address: string): string | null {
    try {
        return new URL(address).origin;
    } catch {
        return null;
    }
}
