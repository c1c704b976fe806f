/** A sparkline of a metric's recent values. */

const WIDTH = 120;
const HEIGHT = 28;

export function Trend({ values }: { values: readonly number[] }) {
    if (values.length < 2) return <svg class="trend" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} aria-hidden="true" />;
    const [least, most] = [Math.min(...values), Math.max(...values)];
    const x = (index: number): number => (index / (values.length - 1)) * WIDTH;
    const y = (value: number): number =>
        most === least ? HEIGHT - 3 : 3 + (1 - (value - least) / (most - least)) * (HEIGHT - 6);
    const points = values.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
    return (
        <svg class="trend" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
            <polyline points={points} />
        </svg>
    );
}
