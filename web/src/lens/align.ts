/**
 * Rows of the lens: one per moment, with the frames of the chosen protocols. Pure.
 *
 * The protocols report the same moments in different orders, and each leaves some out. The most detailed one (AG-UI)
 * determines the order; a moment that only another protocol has is placed before the next one that both have.
 */

import { ADAPTERS } from "./adapters";
import { HISTORY } from "./blade";
import { called, type Frame, type Kind, type Moment, perProtocol, type Protocol, PROTOCOLS, textOf } from "./frames";

export interface Row {
    readonly key: string;
    readonly kind: Kind;
    readonly text: string;
    readonly cells: Readonly<Record<Protocol, readonly Frame[]>>;
    /** The number of moments in the row. */
    readonly count: number;
}

export type Columns = Readonly<Record<Protocol, readonly Frame[]>>;

const ORDER: readonly Protocol[] = ["ag-ui", "blade", "agentscope", "ai-sdk", "openai", "a2a", "aap"];

interface Node {
    readonly moment: Moment;
    text: string;
    readonly cells: Record<Protocol, Frame[]>;
}

/** The rows of a run in which one of the chosen protocols has an event. */
export function align(columns: Columns, chosen: readonly Protocol[] = PROTOCOLS): Row[] {
    const nodes = new Map<string, Node>();
    let order: Node[] = [];
    for (const protocol of ORDER) order = merged(order, nodes, protocol, columns[protocol]);
    return order
        .filter(({ cells }) => chosen.some((each) => cells[each].length > 0))
        .map(({ moment, text, cells }) => ({ key: moment.key, kind: moment.kind, text, cells, count: 1 }));
}

/** Merges one more protocol into the rows. */
function merged(
    order: readonly Node[],
    nodes: Map<string, Node>,
    protocol: Protocol,
    frames: readonly Frame[],
): Node[] {
    const places = new Map(order.map((node, place) => [node, place]));
    const messages = messagesOf(order);
    const ids = callsOf(order);
    const before = new Map<number, Node[]>();
    const after = new Map<number, Node[]>();
    let waiting: Node[] = [];
    let last = -1;
    ADAPTERS[protocol].moments(frames).forEach((own, index) => {
        const name = own.kind === "note" ? `${own.key}:${protocol}` : own.key; // only this protocol has it
        const moment = { ...own, key: name.replace(/#.*$/, (call) => ids.get(call) ?? call) };
        const frame = frames[index];
        if (frame === undefined) return;
        let node = nodes.get(moment.key);
        if (node === undefined) {
            node = { moment, text: "", cells: empty() };
            nodes.set(moment.key, node);
            // A history turn names its message but has no time: it is placed after the message's last row.
            const owner = frame.name === HISTORY ? messages.get(messageOf(frame)) : undefined;
            if (owner === undefined) waiting.push(node);
            else after.set(owner, [...(after.get(owner) ?? []), node]);
        }
        const place = places.get(node);
        if (place !== undefined && place > last) {
            before.set(place, waiting);
            waiting = [];
            last = place;
        }
        if (node.text === "") node.text = moment.text;
        node.cells[protocol].push(frame);
    });
    const all = order.flatMap((node, place) => [...(before.get(place) ?? []), node, ...(after.get(place) ?? [])]);
    return [...all, ...waiting];
}

/** The IDs of the calls in AG-UI, by the tool and the number of the call. Calls of sub-agents do not count. */
function callsOf(order: readonly Node[]): Map<string, string> {
    const ids = new Map<string, string>();
    const counts = new Map<string, number>();
    for (const { moment, text, cells } of order) {
        if (moment.kind !== "call" || textOf(cells["ag-ui"][0]?.body["subagentRunId"]) !== "") continue;
        const count = (counts.get(text) ?? 0) + 1;
        counts.set(text, count);
        ids.set(called(text, count), moment.key.replace(/^call:/, ""));
    }
    return ids;
}

/** The last row of each message in AG-UI. */
function messagesOf(order: readonly Node[]): Map<string, number> {
    const lastRows = new Map<string, number>();
    order.forEach((node, place) => {
        for (const frame of node.cells["ag-ui"]) lastRows.set(messageOf(frame), place);
    });
    return lastRows;
}

/** The message ID of a frame, which is the same in all protocols. */
function messageOf({ body }: Frame): string {
    const own = textOf(body["parentMessageId"]) || textOf(body["messageId"]) || textOf(body["turn_id"]);
    return own.replace(/^turn_/, "").split(":")[0] ?? "";
}

/** Merges adjacent chunks of the same text into one row each. */
export function collapse(rows: readonly Row[], opened: ReadonlySet<string>): Row[] {
    const collapsed: Row[] = [];
    let group: Row[] = [];
    const flush = () => {
        const [first] = group;
        if (first !== undefined) {
            if (group.length < 3 || opened.has(first.key)) collapsed.push(...group);
            else collapsed.push(joined(group));
        }
        group = [];
    };
    for (const row of rows) {
        if (isPiece(row) && (group[0] === undefined || loopAndKind(group[0]) === loopAndKind(row))) group.push(row);
        else {
            flush();
            if (isPiece(row)) group.push(row);
            else collapsed.push(row);
        }
    }
    flush();
    return collapsed;
}

const isPiece = (row: Row) => row.kind === "text" || row.kind === "thinking";
const loopAndKind = (row: Row) => row.key.slice(0, row.key.lastIndexOf(":"));

function joined(group: readonly Row[]): Row {
    const first = group[0] as Row;
    const cells = empty();
    for (const protocol of PROTOCOLS) cells[protocol] = group.flatMap((row) => row.cells[protocol]);
    return { ...first, text: group.map((row) => row.text).join(""), cells, count: group.length };
}

function empty(): Record<Protocol, Frame[]> {
    return perProtocol(() => []);
}
