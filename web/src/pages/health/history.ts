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
const MAX_READINGS = 300;
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

export const added = (history: readonly Reading[], next: Reading): Reading[] => [
    ...history.slice(1 - MAX_READINGS),
    next,
];

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
