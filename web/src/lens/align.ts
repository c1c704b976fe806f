/**
 * Rows of the lens: one for each fact, with what every protocol says of it. Pure.
 *
 * Each protocol tells the same facts in its own order and leaves some out. The most talkative one (AG-UI) gives the
 * order; what only another tells is put before the next fact that both tell.
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

interface Node {
    readonly moment: Moment;
    words: string;
    readonly cells: Record<Protocol, Frame[]>;
}

/** The rows of a run. */
export function align(columns: Columns): Row[] {
    const nodes = new Map<string, Node>();
    let order: Node[] = [];
    for (const protocol of ORDER) order = merged(order, nodes, protocol, columns[protocol]);
    return order.map(({ moment, words, cells }) => ({ key: moment.key, kind: moment.kind, words, cells, count: 1 }));
}

/** The rows so far, with one more protocol's. */
function merged(
    order: readonly Node[],
    nodes: Map<string, Node>,
    protocol: Protocol,
    frames: readonly Frame[],
): Node[] {
    const places = new Map(order.map((node, place) => [node, place]));
    const messages = messagesOf(order);
    const before = new Map<number, Node[]>();
    const after = new Map<number, Node[]>();
    let waiting: Node[] = [];
    let last = -1;
    MOMENTS[protocol](frames).forEach((moment, index) => {
        const frame = frames[index];
        if (frame === undefined) return;
        let node = nodes.get(moment.key);
        if (node === undefined) {
            node = { moment, words: "", cells: empty() };
            nodes.set(moment.key, node);
            // A turn of the history says whose it is, and nothing of when: it stands behind what made it.
            const made = frame.name === HISTORY ? messages.get(messageOf(frame)) : undefined;
            if (made === undefined) waiting.push(node);
            else after.set(made, [...(after.get(made) ?? []), node]);
        }
        const place = places.get(node);
        if (place !== undefined && place > last) {
            before.set(place, waiting);
            waiting = [];
            last = place;
        }
        if (node.words === "") node.words = moment.words;
        node.cells[protocol].push(frame);
    });
    const all = order.flatMap((node, place) => [...(before.get(place) ?? []), node, ...(after.get(place) ?? [])]);
    return [...all, ...waiting];
}

/** The last place at which AG-UI tells of each message. */
function messagesOf(order: readonly Node[]): Map<string, number> {
    const found = new Map<string, number>();
    order.forEach((node, place) => {
        for (const frame of node.cells["ag-ui"]) found.set(messageOf(frame), place);
    });
    return found;
}

/** The message that a frame belongs to, as all protocols know it. */
function messageOf({ body }: Frame): string {
    const own = textOf(body["parentMessageId"]) || textOf(body["messageId"]) || textOf(body["turn_id"]);
    return own.replace(/^turn_/, "").split(":")[0] ?? "";
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
