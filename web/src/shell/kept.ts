/** What the browser keeps for the console. A browser that keeps nothing (private windows) is no fault. */

const PREFIX = "dragoman.";

export function kept(name: string): string | null {
    try {
        return localStorage.getItem(PREFIX + name);
    } catch {
        return null;
    }
}

export function keep(name: string, value: string | null): void {
    try {
        if (value === null) localStorage.removeItem(PREFIX + name);
        else localStorage.setItem(PREFIX + name, value);
    } catch {
        // It holds until the page is left.
    }
}
