/** The metrics over time, as far as this page has seen them: rates, ratios and quantiles of the last minute. Pure. */
import { type Buckets, bucketsOf, quantile, type Sample, total } from "./metrics";

/** What is kept of one reading. */
export interface Reading {
    /** Milliseconds since 1970. */
    readonly at: number;
    readonly started: number;
    readonly ended: number;
    readonly failed: number;
    readonly commits: Buckets;
    readonly firstOutputs: Buckets;
}

export interface Point {
    readonly at: number;
    /** Null if there was nothing to measure. */
    readonly value: number | null;
}

const WINDOW_MS = 60_000;
const KEPT_MS = 3_600_000;
const DENSE_MS = 300_000;
const SPARSE_MS = 15_000;
/** Outcomes that are no success; a run that was stopped, or waits for somebody, is none of them. */
const FAILURES = new Set(["error", "interrupted"]);

export function reading(samples: readonly Sample[], at: number): Reading {
    const stopped = samples.filter(({ name }) => name === "dragoman_runs_stopped_total");
    const sum = (of: readonly Sample[]): number => of.reduce((all, each) => all + each.value, 0);
    return {
        at,
        started: total(samples, "dragoman_runs_started_total") ?? 0,
        ended: sum(stopped),
        failed: sum(stopped.filter(({ labels }) => FAILURES.has(labels["reason"] ?? ""))),
        commits: bucketsOf(samples, "dragoman_commit_seconds"),
        firstOutputs: bucketsOf(samples, "dragoman_model_first_seconds"),
    };
}

/** The readings of the last hour. Those of the last five minutes are all kept, of the others one in 15 seconds. */
export function added(history: readonly Reading[], next: Reading): Reading[] {
    const kept: Reading[] = [];
    for (const each of history) {
        const age = next.at - each.at;
        const isClose = each.at - (kept.at(-1)?.at ?? -Infinity) < SPARSE_MS;
        if (age < KEPT_MS && (age < DENSE_MS || !isClose)) kept.push(each);
    }
    return [...kept, next];
}

/** Readings as text. JSON has no infinity, which is the last bound of a histogram. */
export const written = (history: readonly Reading[]): string =>
    JSON.stringify(history, (_, value: unknown) => (value === Infinity ? "inf" : value));

/** The readings that were written; none, if the text is not what this version wrote. */
export function parsed(text: string): Reading[] {
    try {
        const history: unknown = JSON.parse(text, (_, value: unknown) => (value === "inf" ? Infinity : value));
        return Array.isArray(history) ? (history as Reading[]) : [];
    } catch {
        return [];
    }
}

/** Runs started per minute. */
export const runRate = (history: readonly Reading[]): Point[] =>
    overTime(history, (before, now) => (grown(before.started, now.started) * WINDOW_MS) / (now.at - before.at));

/** The share of failures among the runs that ended, from 0 to 1. */
export const errorRatio = (history: readonly Reading[]): Point[] =>
    overTime(history, (before, now) => {
        const ended = grown(before.ended, now.ended);
        return ended === 0 ? null : grown(before.failed, now.failed) / ended;
    });

/** The 95th percentile of a histogram, in its unit. */
export const p95 = (history: readonly Reading[], name: "commits" | "firstOutputs"): Point[] =>
    overTime(history, (before, now) => quantile(grownBuckets(before[name], now[name]), 0.95));

/** A value for each reading but the first: from the difference to the one that was newest a minute before it. */
function overTime(history: readonly Reading[], measure: (before: Reading, now: Reading) => number | null): Point[] {
    return history.slice(1).map((now, index) => {
        const earlier = history.slice(0, index + 1);
        const before = earlier.find(({ at }) => at >= now.at - WINDOW_MS) ?? (earlier.at(-1) as Reading);
        return { at: now.at, value: measure(before, now) };
    });
}

/** How much a counter has grown. After a restart of the server it begins at 0. */
const grown = (before: number, now: number): number => (now < before ? now : now - before);

function grownBuckets(before: Buckets, now: Buckets): Buckets {
    const counts = new Map(before);
    if ((now.at(-1)?.[1] ?? 0) < (before.at(-1)?.[1] ?? 0)) return now;
    return now.map(([bound, count]) => [bound, count - (counts.get(bound) ?? 0)] as const);
}
