/**
 * A long list of which only the part in sight is drawn: five thousand messages cost what twenty cost.
 *
 * Heights are guessed until they were seen. What changes above the sight moves nothing in it, and who reads the end stays
 * at the end while it grows.
 */
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { Button } from "../components/Button";
import { t } from "../i18n";

const OVERSCAN_PX = 900;
const GUESS_PX = 120;
/** How near the end counts as at the end. */
const END_PX = 48;

interface Props<T> {
    items: readonly T[];
    idOf: (item: T) => string;
    children: (item: T, index: number) => ComponentChildren;
    label: string;
    isBusy: boolean;
    /** While it is true the end is shown: the reader has just said something. */
    isSaying: boolean;
    foot?: ComponentChildren;
}

interface Range {
    from: number;
    to: number;
}

export function Feed<T>({ items, idOf, children, label, isBusy, isSaying, foot }: Props<T>) {
    const scroller = useRef<HTMLDivElement>(null);
    const range = useSignal<Range>({ from: Math.max(0, items.length - 20), to: items.length });
    const isAtEnd = useSignal(true);
    const lastTop = useRef(0);
    const rows = useMemo(() => new Rows(), []);
    rows.set(items.map(idOf));

    const look = (): void => {
        const view = scroller.current;
        if (view === null) return;
        const next = rows.between(view.scrollTop - OVERSCAN_PX, view.scrollTop + view.clientHeight + OVERSCAN_PX);
        if (next.from !== range.peek().from || next.to !== range.peek().to) range.value = next;
    };
    const stick = (view: HTMLElement): void => {
        view.scrollTop = view.scrollHeight;
        lastTop.current = view.scrollTop; // rows that were guessed too high bring it up: that is not the reader's going
    };
    const toEnd = (): void => {
        if (scroller.current !== null) stick(scroller.current);
        isAtEnd.value = true;
        look();
    };
    const onScroll = (): void => {
        const view = scroller.current;
        if (view === null) return;
        // What grew moves the end away as well; only who goes up leaves it.
        if (view.scrollTop + view.clientHeight >= view.scrollHeight - END_PX) isAtEnd.value = true;
        else if (view.scrollTop < lastTop.current) isAtEnd.value = false;
        lastTop.current = view.scrollTop;
        look();
    };

    const moved = useRef(0);
    const measure = (id: string | undefined, height: number): void => {
        const view = scroller.current;
        if (view === null || id === undefined || height === 0) return;
        const grew = rows.measure(id, height);
        if (rows.topOf(id) + height - grew <= view.scrollTop) moved.current += grew;
    };
    /** Hold what the reader looks at where it is: the end, or what is in sight while rows above it got another height. */
    const hold = (): void => {
        const view = scroller.current;
        if (view === null) return;
        if (isAtEnd.peek()) stick(view);
        else if (moved.current !== 0) view.scrollTop += moved.current;
        moved.current = 0;
    };

    const observer = useMemo(
        () =>
            new ResizeObserver((changes) => {
                for (const { target, borderBoxSize } of changes) {
                    measure((target as HTMLElement).dataset["row"], borderBoxSize[0]?.blockSize ?? 0);
                }
                hold();
                look();
            }),
        [],
    );
    useEffect(() => () => observer.disconnect(), []);
    useLayoutEffect(() => {
        if (isSaying || isAtEnd.peek()) toEnd();
        else look();
    }, [items, isSaying]);
    // Other rows are drawn, and what is not drawn is guessed anew: the end is not where it was. It is not looked again here
    // but when the browser scrolls: two ranges that lead to one another would never let it draw.
    useLayoutEffect(hold, [range.value]);
    useLayoutEffect(() => {
        const view = scroller.current;
        if (view === null) return;
        const sight = new ResizeObserver(() => (isAtEnd.peek() ? toEnd() : look()));
        sight.observe(view);
        return () => sight.disconnect();
    }, []);

    const { from, to } = range.value;
    const shown = items.slice(from, Math.min(to, items.length));
    return (
        <div class="feed-frame">
            <div ref={scroller} class="feed" onScroll={onScroll} tabIndex={0} role="region" aria-label={label}>
                <div class="feed-column" role="feed" aria-busy={isBusy} aria-label={label}>
                    <div style={{ height: `${rows.topAt(from)}px` }} aria-hidden="true" />
                    {shown.map((item, index) => (
                        <Row
                            key={idOf(item)}
                            id={idOf(item)}
                            observer={observer}
                            onHeight={measure}
                            place={from + index + 1}
                            total={items.length}
                        >
                            {children(item, from + index)}
                        </Row>
                    ))}
                    <div style={{ height: `${rows.below(Math.min(to, items.length))}px` }} aria-hidden="true" />
                </div>
                {foot}
            </div>
            {!isAtEnd.value && (
                <div class="feed-end">
                    <Button isSmall icon="down" onClick={toEnd}>
                        {t("chat.to-end")}
                    </Button>
                </div>
            )}
        </div>
    );
}

interface RowProps {
    id: string;
    observer: ResizeObserver;
    /** Told at once when the row is drawn, so that it is not guessed any more when it is drawn no longer. */
    onHeight: (id: string, height: number) => void;
    place: number;
    total: number;
    children: ComponentChildren;
}

function Row({ id, observer, onHeight, place, total, children }: RowProps) {
    const row = useRef<HTMLElement>(null);
    useLayoutEffect(() => {
        const element = row.current;
        if (element === null) return;
        onHeight(id, element.getBoundingClientRect().height);
        observer.observe(element);
        return () => observer.unobserve(element);
    }, []);
    return (
        <article ref={row} data-row={id} aria-posinset={place} aria-setsize={total} tabIndex={-1}>
            {children}
        </article>
    );
}

/** Where each row is. Rows that were not seen yet are as high as those seen, on the average. */
class Rows {
    private ids: readonly string[] = [];
    private readonly places = new Map<string, number>();
    private readonly heights = new Map<string, number>();
    private tops: number[] = [0];
    private isStale = true;
    private sum = 0;

    set(ids: readonly string[]): void {
        if (ids.length === this.ids.length && ids.every((id, index) => id === this.ids[index])) return;
        this.ids = ids;
        this.places.clear();
        ids.forEach((id, index) => this.places.set(id, index));
        this.isStale = true;
    }

    /** Note a height; by how much the row is higher than was thought. */
    measure(id: string, height: number): number {
        const before = this.heights.get(id);
        const thought = before ?? this.guess();
        if (before === height) return 0;
        this.sum += height - (before ?? 0);
        this.heights.set(id, height);
        this.isStale = true;
        return height - thought;
    }

    topOf(id: string): number {
        return this.topAt(this.places.get(id) ?? 0);
    }

    topAt(index: number): number {
        this.settle();
        return this.tops[Math.min(index, this.ids.length)] ?? 0;
    }

    below(index: number): number {
        return this.topAt(this.ids.length) - this.topAt(index);
    }

    between(top: number, bottom: number): Range {
        this.settle();
        const from = Math.max(0, this.firstBeyond(top) - 1);
        return { from, to: Math.min(this.ids.length, Math.max(from + 1, this.firstBeyond(bottom))) };
    }

    /** The first row that begins beyond a height. */
    private firstBeyond(height: number): number {
        let low = 0;
        let high = this.ids.length;
        while (low < high) {
            const middle = (low + high) >> 1;
            if ((this.tops[middle] ?? 0) <= height) low = middle + 1;
            else high = middle;
        }
        return low;
    }

    private guess(): number {
        return this.heights.size === 0 ? GUESS_PX : Math.round(this.sum / this.heights.size);
    }

    private settle(): void {
        if (!this.isStale) return;
        const guess = this.guess();
        let top = 0;
        this.tops = new Array<number>(this.ids.length + 1);
        this.ids.forEach((id, index) => {
            this.tops[index] = top;
            top += this.heights.get(id) ?? guess;
        });
        this.tops[this.ids.length] = top;
        this.isStale = false;
    }
}
