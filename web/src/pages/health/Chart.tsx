/** A small chart of a value over time, with its newest value and its scale. */
import { t } from "../../i18n";
import type { Point } from "./history";

const WIDTH = 300;
const HEIGHT = 72;
/** The axis is never shorter than this. */
const MIN_SPAN_MS = 60_000;

interface Props {
    title: string;
    hint: string;
    points: readonly Point[];
    /** The least value at the top of the chart, so that noise stays small. */
    least: number;
    text: (value: number) => string;
}

export function Chart({ title, hint, points, least, text }: Props) {
    const values = points.flatMap(({ value }) => (value === null ? [] : [value]));
    const newest = points.at(-1)?.value ?? null;
    const top = rounded(Math.max(least, ...values));
    const end = points.at(-1)?.at ?? 0;
    const span = Math.max(MIN_SPAN_MS, end - (points[0]?.at ?? end));
    const x = (at: number): number => WIDTH - ((end - at) / span) * WIDTH;
    const y = (value: number): number => HEIGHT - (value / top) * HEIGHT;
    const shown = newest === null ? "–" : text(newest);
    const most = values.length === 0 ? "–" : text(Math.max(...values));
    return (
        <figure class="card chart">
            <figcaption>
                <span class="soft small">{title}</span>
                <strong>{shown}</strong>
                <span class="soft small">{hint}</span>
            </figcaption>
            <div class="chart-plot">
                <span class="chart-scale">{text(top)}</span>
                <svg
                    viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
                    preserveAspectRatio="none"
                    role="img"
                    aria-label={t("health.chart", { title, newest: shown, most })}
                >
                    <path class="chart-grid" d={`M0 .5H${WIDTH}M0 ${HEIGHT / 2}H${WIDTH}M0 ${HEIGHT - 0.5}H${WIDTH}`} />
                    {pieces(points).map((piece, index) => (
                        <polyline
                            key={index}
                            points={piece
                                .map(({ at, value }) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`)
                                .join(" ")}
                        />
                    ))}
                </svg>
                <span class="chart-time">{t("health.chart-ago", { count: Math.round(span / 60_000) })}</span>
                <span class="chart-time">{t("health.chart-now")}</span>
            </div>
        </figure>
    );
}

type Measured = Point & { readonly value: number };

/** The lines between gaps. A single value is a short line. */
function pieces(points: readonly Point[]): Measured[][] {
    const all: Measured[][] = [[]];
    for (const each of points) {
        if (each.value === null) all.push([]);
        else all.at(-1)?.push(each as Measured);
    }
    return all
        .filter((piece) => piece.length > 0)
        .map((piece) =>
            piece.length > 1 ? piece : [{ ...(piece[0] as Measured), at: piece[0]!.at - 1_000 }, ...piece],
        );
}

/** The next number of the form 1, 2 or 5 times a power of ten. */
function rounded(value: number): number {
    const power = 10 ** Math.floor(Math.log10(value));
    return power * ([1, 2, 5, 10].find((each) => each * power >= value * 0.999) ?? 10);
}
