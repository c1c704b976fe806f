/** Parses `/metrics`. Pure. Source: the Prometheus text format, 0.0.4. */

export interface Sample {
    readonly name: string;
    readonly labels: Readonly<Record<string, string>>;
    readonly value: number;
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

export function readMetrics(text: string): Sample[] {
    const samples: Sample[] = [];
    for (const line of text.split("\n")) {
        const found = line.startsWith("#") ? null : LINE.exec(line);
        if (found === null) continue;
        const [, name = "", labels = "", value = ""] = found;
        const pairs = [...labels.matchAll(LABEL)].map(([, key = "", value = ""]) => [
            key,
            value.replace(/\\(.)/g, "$1"),
        ]);
        samples.push({
            name,
            labels: Object.fromEntries(pairs) as Record<string, string>,
            value: value === "+Inf" ? Infinity : Number(value),
        });
    }
    return samples;
}

/** The sum of a metric over all its labels; null if the server does not export it. */
export function total(samples: readonly Sample[], name: string): number | null {
    const found = samples.filter((each) => each.name === name);
    return found.length === 0 ? null : found.reduce((sum, each) => sum + each.value, 0);
}

/** A metric by the values of one label, largest first, without zeros. */
export function parts(samples: readonly Sample[], name: string, label: string): [string, number][] {
    const sums = new Map<string, number>();
    for (const each of samples) {
        if (each.name !== name || each.value === 0) continue;
        const part = each.labels[label] ?? "";
        sums.set(part, (sums.get(part) ?? 0) + each.value);
    }
    return [...sums].sort(([, one], [, other]) => other - one);
}

/** Counts of a histogram up to each bound, in the order of the bounds. */
export type Buckets = readonly (readonly [bound: number, count: number])[];

export function bucketsOf(samples: readonly Sample[], name: string): Buckets {
    const counts = new Map<number, number>();
    for (const each of samples) {
        if (each.name !== `${name}_bucket`) continue;
        const bound = each.labels["le"] === "+Inf" ? Infinity : Number(each.labels["le"]);
        counts.set(bound, (counts.get(bound) ?? 0) + each.value);
    }
    return [...counts].sort(([one], [other]) => one - other);
}

/** A quantile of a histogram, with linear interpolation between bounds; null if nothing was counted. */
export function quantile(buckets: Buckets, share: number): number | null {
    const rank = (buckets.at(-1)?.[1] ?? 0) * share;
    if (rank === 0) return null;
    let [below, seen] = [0, 0];
    for (const [bound, count] of buckets) {
        if (count >= rank) {
            return bound === Infinity ? below : below + ((bound - below) * (rank - seen)) / Math.max(1, count - seen);
        }
        [below, seen] = [bound, count];
    }
    return below;
}
