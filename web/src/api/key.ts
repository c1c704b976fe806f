/** The key of this reader: asked for once, kept in this browser, sent to this server alone. */
import { signal } from "@preact/signals";
import { keep, kept } from "../shell/kept";

const IN_ADDRESS = /^#\/?key=([\w.~-]+)$/;

export const key = signal<string | null>(kept("key"));

export function useKey(next: string | null): void {
    keep("key", next);
    key.value = next;
}

/** Take the key out of an address such as `/#key=sk-…` before anything can look at it. */
export function takeKeyFromAddress(): void {
    const found = IN_ADDRESS.exec(location.hash)?.[1];
    if (found === undefined) return;
    history.replaceState(null, "", location.pathname + location.search);
    useKey(found);
}
