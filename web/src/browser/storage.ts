/** Settings stored in the browser. Without storage (private windows) they last until the page is closed. */

const PREFIX = "dragoman.";

export function readStored(name: string): string | null {
    try {
        return localStorage.getItem(PREFIX + name);
    } catch {
        return null;
    }
}

export function store(name: string, value: string | null): void {
    try {
        if (value === null) localStorage.removeItem(PREFIX + name);
        else localStorage.setItem(PREFIX + name, value);
    } catch {
        // Not stored: the value lasts until the page is closed.
    }
}
