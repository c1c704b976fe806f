/** The user's API key. It is stored in this browser and sent only to this server. */
import { signal } from "@preact/signals";
import { store, readStored } from "../browser/storage";

const IN_ADDRESS = /^#\/?key=([\w.~-]+)$/;

export const key = signal<string | null>(readStored("key"));

export function useKey(next: string | null): void {
    store("key", next);
    key.value = next;
}

/** Removes the key from an address such as `/#key=sk-…` and stores it, before other code reads the address. */
export function takeKeyFromAddress(): void {
    const value = IN_ADDRESS.exec(location.hash)?.[1];
    if (value === undefined) return;
    history.replaceState(null, "", location.pathname + location.search);
    useKey(value);
}
