/** Where the reader is: the part of the address after `#`, so that the server needs no route for it. */
import { signal } from "@preact/signals";

export const PLACES = ["conversations", "lens", "memories", "keys", "schedules", "attachments", "health"] as const;
export type Place = (typeof PLACES)[number];

export interface Address {
    place: Place;
    /** What the place shows, such as a session; empty when it was not said. */
    id: string;
}

export function read(hash: string): Address {
    const [first = "", second = ""] = hash.replace(/^#\/?/, "").split("/");
    const place = PLACES.find((each) => each === first) ?? "conversations";
    return { place, id: decoded(second) };
}

/** The link to a place: `href={to("lens", id)}`. */
export const to = (place: Place, id = ""): string => `#/${place}${id ? `/${encodeURIComponent(id)}` : ""}`;

export const address = signal<Address>(read(location.hash));
addEventListener("hashchange", () => (address.value = read(location.hash)));

export function go(place: Place, id = ""): void {
    location.hash = to(place, id);
}

/** The same without a step that “back” would return to. */
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
