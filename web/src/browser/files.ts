/** Files: dragged over the page, read and saved. */

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

/** The content of a file as a `data:` URL. */
export function dataUrl(file: Blob): Promise<string> {
    return new Promise((resolve, reject) => {
        const reader = new FileReader();
        reader.onload = () => resolve(String(reader.result));
        reader.onerror = () => reject(reader.error ?? new Error("the file cannot be read"));
        reader.readAsDataURL(file);
    });
}

/** Saves a text as a file of the user. */
export function download(name: string, type: string, content: BlobPart): void {
    const address = URL.createObjectURL(new Blob([content], { type }));
    const link = document.createElement("a");
    link.href = address;
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(address));
}
