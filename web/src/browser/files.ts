/** Files that are dragged over the page. */

export const hasFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;

/** Keeps the browser from opening dropped files, which would leave the page. Pages that take files read them. */
export function keepPageOnDrop(): () => void {
    const prevent = (event: DragEvent): void => {
        if (hasFiles(event)) event.preventDefault();
    };
    addEventListener("dragover", prevent);
    addEventListener("drop", prevent);
    return () => {
        removeEventListener("dragover", prevent);
        removeEventListener("drop", prevent);
    };
}
