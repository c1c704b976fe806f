/** Routes in the part of the address after `#`, so that the server needs no route for them. */
import { signal } from "@preact/signals";

export const PAGES = ["conversations", "lens", "memories", "keys", "schedules", "attachments", "health"] as const;
export type Place = (typeof PAGES)[number];

export interface Address {
    place: Place;
    /** The ID of what is shown, such as a session; empty if there is none. */
    id: string;
}

export function read(hash: string): Address {
    const [first = "", second = ""] = hash.replace(/^#\/?/, "").split("/");
    const place = PAGES.find((each) => each === first) ?? "conversations";
    return { place, id: decoded(second) };
}

/** The link to a page: `href={to("lens", id)}`. */
export const to = (place: Place, id = ""): string => `#/${place}${id ? `/${encodeURIComponent(id)}` : ""}`;

export const address = signal<Address>(read(location.hash));
addEventListener("hashchange", () => (address.value = read(location.hash)));

export function go(place: Place, id = ""): void {
    location.hash = to(place, id);
}

/** Navigates without a history entry. */
export function replace(place: Place, id = ""): void {
    history.replaceState(null, "", to(place, id));
    address.value = read(location.hash);
}

function decoded(text: string): string {
    try {
        return decodeURIComponent(text);
    } catch {
        return text;
    }
}
