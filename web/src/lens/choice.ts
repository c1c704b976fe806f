/** Which protocols the lens shows: those in the address, else the last choice in this browser. */
import { address, replace } from "../browser/router";
import { readStored, store } from "../browser/storage";
import { type Protocol, PROTOCOLS } from "./frames";

/** More columns are too narrow to read, and a browser opens six connections to a server at most. */
export const MAX_COLUMNS = 4;
const STORED = "lens.protocols";
const DEFAULT: readonly Protocol[] = ["aap", "ag-ui", "agentscope", "blade"];

/** The chosen protocols, in the order of their columns. */
export function chosenProtocols(): readonly Protocol[] {
    const chosen = inOrderOfChoice();
    return PROTOCOLS.filter((each) => chosen.includes(each));
}

/** Shows or hides a protocol. One too many takes the place of the one that was chosen first. */
export function toggle(protocol: Protocol): void {
    const chosen = inOrderOfChoice();
    const others = chosen.filter((each) => each !== protocol);
    const next = others.length < chosen.length ? others : [...chosen, protocol].slice(-MAX_COLUMNS);
    if (next.length === 0) return;
    store(STORED, next.join("."));
    replace("lens", address.peek().id, next.join("."));
}

function inOrderOfChoice(): readonly Protocol[] {
    return parsed(address.value.detail) ?? parsed(readStored(STORED) ?? "") ?? DEFAULT;
}

/** The protocols in a text such as `ag-ui.openai`; null if it names none. */
function parsed(text: string): readonly Protocol[] | null {
    const names = text.split(".");
    const found = names.map((name) => PROTOCOLS.find((each) => each === name)).filter((each) => each !== undefined);
    const chosen = [...new Set(found)].slice(0, MAX_COLUMNS);
    return chosen.length === 0 ? null : chosen;
}
