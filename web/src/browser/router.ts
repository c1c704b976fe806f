/** Routes in the part of the address after `#`, so that the server needs no route for them. */
import { signal } from "@preact/signals";

export const PAGES = [
    "conversations",
    "lens",
    "memories",
    "keys",
    "schedules",
    "attachments",
    "health",
    "audit",
] as const;
/** Pages that are reached from others, and not from the navigation. */
const DETAILS = ["run", "share"] as const;
export type Place = (typeof PAGES | typeof DETAILS)[number];

export interface Address {
    place: Place;
    /** The ID of what is shown; empty if there is none. Of a session, without the prefix that Blade's IDs have. */
    id: string;
    /** How it is shown, as the page understands it; empty if the address does not say. */
    detail: string;
}

export function read(hash: string): Address {
    const [first = "", second = "", third = ""] = hash.replace(/^#\/?/, "").split("/");
    const place = [...PAGES, ...DETAILS].find((each) => each === first) ?? "conversations";
    return { place, id: decoded(second).replace(/^sess_/, ""), detail: decoded(third) };
}

/** The link to a page: `href={to("lens", id)}`. */
export const to = (place: Place, id = "", detail = ""): string =>
    `#/${[place, id, detail].filter(Boolean).map(encodeURIComponent).join("/")}`;

export const address = signal<Address>(read(location.hash));
addEventListener("hashchange", () => (address.value = read(location.hash)));

export function go(place: Place, id = ""): void {
    location.hash = to(place, id);
}

/** Navigates without a history entry. */
export function replace(place: Place, id = "", detail = ""): void {
    history.replaceState(null, "", to(place, id, detail));
    address.value = read(location.hash);
}

function decoded(text: string): string {
    try {
        return decodeURIComponent(text);
    } catch {
        return text;
    }
}
