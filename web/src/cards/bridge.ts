/**
 * The host application that embeds or opened the console, and how actions are sent to it.
 *
 * Actions go to one named origin, never to "*", and only after the user has allowed that origin in this window. The
 * server decides which origins may embed the console (`frame-ancestors`, from its setting `cors_origins`).
 */
import { signal } from "@preact/signals";
import type { Action } from "./schema";

export interface BridgeAction {
    readonly action: string;
    readonly payload: unknown;
    /** Identifies the action together with the block's type: hosts handle each pair once. */
    readonly toolCallId: string;
}

export interface Host {
    readonly window: Window;
    readonly origin: string;
}

const ALLOWED = "dragoman.host";

/** The origin that the user has allowed, for this window only. */
export const allowed = signal<string | null>(stored());
/** Tool calls sent since the page was opened, so that nothing is sent twice automatically. */
const offered = new Set<string>();

/** The embedding page, or the one that opened this window; null when there is none. */
export function hostOf(page: Window): Host | null {
    const hostWindow = page.parent !== page ? page.parent : (page.opener as Window | null);
    const origin = page.location.ancestorOrigins?.[0] ?? originOf(page.document.referrer);
    if (hostWindow === null || origin === null || origin === "null" || origin === page.location.origin) return null;
    return { window: hostWindow, origin };
}

export function allow(host: Host): void {
    allowed.value = host.origin;
    try {
        sessionStorage.setItem(ALLOWED, host.origin);
    } catch {
        // Storage is unavailable: the permission lasts until the page is closed.
    }
}

/** Sends an action to the host. Returns whether it was sent. */
export function offer(action: BridgeAction, host: Host | null = hostOf(window)): boolean {
    if (host === null || allowed.value !== host.origin) return false;
    offered.add(action.toolCallId);
    host.window.postMessage({ type: "dragoman:action", ...action }, host.origin);
    return true;
}

/** Sends the host a user's action on an answer. Returns whether it was sent. */
export function raise(action: Action, host: Host | null = hostOf(window)): boolean {
    if (host === null || allowed.value !== host.origin) return false;
    host.window.postMessage({ type: "dragoman:pressed", action }, host.origin);
    return true;
}

/** Sends a live action once. Actions loaded from history are never sent automatically. */
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
