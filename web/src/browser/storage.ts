/** What is stored in the browser. Without storage (private windows) it lasts until the page is closed. */

const PREFIX = "dragoman.";

/** A setting of all windows. */
export const readStored = (name: string): string | null => read(() => localStorage, name);

export const store = (name: string, value: string | null): void => write(() => localStorage, name, value);

/** What one window has stored: it survives a reload and ends with the window. */
export const readOfWindow = (name: string): string | null => read(() => sessionStorage, name);

export const storeForWindow = (name: string, value: string | null): void => write(() => sessionStorage, name, value);

function read(storage: () => Storage, name: string): string | null {
    try {
        return storage().getItem(PREFIX + name);
    } catch {
        return null;
    }
}

function write(storage: () => Storage, name: string, value: string | null): void {
    try {
        if (value === null) storage().removeItem(PREFIX + name);
        else storage().setItem(PREFIX + name, value);
    } catch {
        // Not stored: the value lasts until the page is closed.
    }
}
