/** Commands of the command palette. Components offer theirs for as long as they are shown. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

export interface Command<Icon extends string = string> {
    readonly id: string;
    readonly icon: Icon;
    readonly label: string;
    readonly run: () => void;
}

const offered = signal<readonly (readonly Command[])[]>([]);

/** The commands of what is shown now. */
export const offeredCommands = (): readonly Command[] => offered.value.flat();

/** Offers commands while the component is mounted. They are offered again when one of `inputs` changes. */
export function useCommands(commands: readonly Command[], inputs: readonly unknown[]): void {
    useEffect(() => {
        offered.value = [...offered.peek(), commands];
        return () => void (offered.value = offered.peek().filter((each) => each !== commands));
    }, inputs);
}
