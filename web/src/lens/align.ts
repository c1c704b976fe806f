/**
 * Rows of the lens: one for each fact, with what every protocol says of it. Pure.
 *
 * Each protocol tells the same facts in its own order and leaves some out. The most talkative one (AG-UI) gives the
 * order; what only others tell is put behind what they told just before it.
 */

import { aapMoments } from "./aap";
import { agentscopeMoments } from "./agentscope";
import { aguiMoments } from "./agui";
import { bladeMoments, HISTORY } from "./blade";
import { type Frame, type Kind, type Moment, type Protocol, PROTOCOLS, textOf } from "./frames";

export interface Row {
    readonly key: string;
    readonly kind: Kind;
    readonly words: string;
    readonly cells: Readonly<Record<Protocol, readonly Frame[]>>;
    /** How many facts it stands for. */
    readonly count: number;
}

export type Columns = Readonly<Record<Protocol, readonly Frame[]>>;

const MOMENTS: Record<Protocol, (frames: readonly Frame[]) => Moment[]> = {
    aap: aapMoments,
    "ag-ui": aguiMoments,
    agentscope: agentscopeMoments,
    blade: bladeMoments,
};
const ORDER: readonly Protocol[] = ["ag-ui", "blade", "agentscope", "aap"];

/** The message that a frame belongs to, as all protocols know it. */
function messageOf({ body }: Frame): string {
    const own = textOf(body["parentMessageId"]) || textOf(body["messageId"]) || textOf(body["turn_id"]);
    return own.replace(/^turn_/, "").split(":")[0] ?? "";
}

interface Node {
    key: string;
    kind: Kind;
    words: string;
    cells: Record<Protocol, Frame[]>;
    next: Node | null;
}

/** The rows of a run. */
export function align(columns: Columns): Row[] {
    const head: Node = { ...fresh("", "note"), next: null };
    const nodes = new Map<string, Node>();
    const messages = new Map<string, Node>();
    for (const protocol of ORDER) {
        let last = head;
        const frames = columns[protocol];
        MOMENTS[protocol](frames).forEach((moment, index) => {
            let node = nodes.get(moment.key);
            const frame = frames[index];
            if (node === undefined) {
                // A turn of the history says whose it is, and nothing of when: it stands behind what made it.
                if (frame?.name === HISTORY) last = messages.get(messageOf(frame)) ?? last;
                node = { ...fresh(moment.key, moment.kind), next: last.next };
                last.next = node;
                nodes.set(moment.key, node);
            }
            if (node.words === "") node.words = moment.words;
            if (frame !== undefined) {
                node.cells[protocol].push(frame);
                if (protocol === "ag-ui") messages.set(messageOf(frame), node);
            }
            last = node;
        });
    }
    return [...rowsOf(head)];
}

/** Neighbouring pieces of the same text as one row each: who reads a run wants its facts, not its words. */
export function folded(rows: readonly Row[], opened: ReadonlySet<string>): Row[] {
    const made: Row[] = [];
    let group: Row[] = [];
    const flush = () => {
        const [first] = group;
        if (first !== undefined) {
            if (group.length < 3 || opened.has(first.key)) made.push(...group);
            else made.push(joined(group));
        }
        group = [];
    };
    for (const row of rows) {
        if (isPiece(row) && (group[0] === undefined || loopAndKind(group[0]) === loopAndKind(row))) group.push(row);
        else {
            flush();
            if (isPiece(row)) group.push(row);
            else made.push(row);
        }
    }
    flush();
    return made;
}

const isPiece = (row: Row) => row.kind === "text" || row.kind === "thinking";
const loopAndKind = (row: Row) => row.key.slice(0, row.key.lastIndexOf(":"));

function joined(group: readonly Row[]): Row {
    const first = group[0] as Row;
    const cells = empty();
    for (const protocol of PROTOCOLS) cells[protocol] = group.flatMap((row) => row.cells[protocol]);
    return { ...first, words: group.map((row) => row.words).join(""), cells, count: group.length };
}

function empty(): Record<Protocol, Frame[]> {
    return { aap: [], "ag-ui": [], agentscope: [], blade: [] };
}

function fresh(key: string, kind: Kind): Node {
    return { key, kind, words: "", cells: empty(), next: null };
}

function* rowsOf(head: Node): Generator<Row> {
    for (let node = head.next; node !== null; node = node.next) {
        yield { key: node.key, kind: node.kind, words: node.words, cells: node.cells, count: 1 };
    }
}
