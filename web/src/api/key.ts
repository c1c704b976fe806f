/** The user's API key. It is stored in this browser and sent only to this server. */
import { signal } from "@preact/signals";
import { store, readStored } from "../browser/storage";

const IN_ADDRESS = /^#\/?key=([\w.~-]+)$/;

/** Changes when another user may be signed in, so that what was loaded before is discarded. */
export const key = signal<string | null>(readStored("key"));

/** What the key allows; empty until the server has said so. */
export const scopes = signal<readonly string[]>([]);

export const isAdmin = (): boolean => scopes.value.includes("admin");
/** Whether the key can only read. */
export const isReadOnly = (): boolean => scopes.value.length > 0 && scopes.value.every((each) => each === "read");

let newest = key.value;

/** What requests send: the key, or the newest token of the login that began with it. */
export const credential = (): string | null => newest;

export function useKey(next: string | null): void {
    renewKey(next);
    key.value = next;
}

/** Replaces a token by a later one of the same user. */
export function renewKey(next: string | null): void {
    store("key", next);
    newest = next;
}

/** Removes the key from an address such as `/#key=sk-…` and stores it, before other code reads the address. */
export function takeKeyFromAddress(): void {
    const value = IN_ADDRESS.exec(location.hash)?.[1];
    if (value === undefined) return;
    history.replaceState(null, "", location.pathname + location.search);
    useKey(value);
}
