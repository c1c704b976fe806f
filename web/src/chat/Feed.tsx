/**
 * A virtual list: only the visible rows are rendered, so 5,000 messages cost as much as 20.
 *
 * Row heights are estimated until they are measured. Changes above the viewport do not move its content, and a view at
 * the end stays at the end while the list grows.
 */
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { Button } from "../components/Button";
import { t } from "../i18n";
import { focusComposer } from "./Composer";

const OVERSCAN_PX = 900;
const GUESS_PX = 120;
/** Distance from the end that still counts as the end. */
const END_PX = 48;

interface Props<T> {
    items: readonly T[];
    idOf: (item: T) => string;
    children: (item: T, index: number) => ComponentChildren;
    label: string;
    isBusy: boolean;
    /** While true, the list stays scrolled to the end, because the user has just sent a message. */
    isSending: boolean;
    foot?: ComponentChildren;
}

interface Range {
    from: number;
    to: number;
}

export function Feed<T>({ items, idOf, children, label, isBusy, isSending, foot }: Props<T>) {
    const scroller = useRef<HTMLDivElement>(null);
    const range = useSignal<Range>({ from: Math.max(0, items.length - 20), to: items.length });
    const isAtEnd = useSignal(true);
    const lastTop = useRef(0);
    const rows = useMemo(() => new Rows(), []);
    rows.set(items.map(idOf));

    const updateRange = (): void => {
        const view = scroller.current;
        if (view === null) return;
        // At the end, the rows count from there: those above it may have been measured since the view was rendered.
        const top = isAtEnd.peek() ? rows.height - view.clientHeight : view.scrollTop;
        const next = rows.between(top - OVERSCAN_PX, top + view.clientHeight + OVERSCAN_PX);
        if (next.from !== range.peek().from || next.to !== range.peek().to) range.value = next;
    };
    const scrollToEnd = (view: HTMLElement): void => {
        view.scrollTop = view.scrollHeight;
        lastTop.current = view.scrollTop; // measuring rows may lower it, which is not the user scrolling up
    };
    const toEnd = (): void => {
        if (scroller.current !== null) scrollToEnd(scroller.current);
        isAtEnd.value = true;
        updateRange();
    };
    const onScroll = (): void => {
        const view = scroller.current;
        if (view === null) return;
        // New content also moves the end away. Only scrolling up leaves it.
        if (view.scrollTop + view.clientHeight >= view.scrollHeight - END_PX) isAtEnd.value = true;
        else if (view.scrollTop < lastTop.current) isAtEnd.value = false;
        lastTop.current = view.scrollTop;
        updateRange();
    };

    const moved = useRef(0);
    const measure = (id: string | undefined, height: number): void => {
        const view = scroller.current;
        if (view === null || id === undefined || height === 0) return;
        const growth = rows.measure(id, height);
        if (rows.topOf(id) + height - growth <= view.scrollTop) moved.current += growth;
    };
    /** Keeps the scroll position: at the end, or at the same content while rows above it change height. */
    const keepPosition = (): void => {
        const view = scroller.current;
        if (view === null) return;
        if (isAtEnd.peek()) scrollToEnd(view);
        else if (moved.current !== 0) view.scrollTop += moved.current;
        moved.current = 0;
    };

    const observer = useMemo(
        () =>
            new ResizeObserver((changes) => {
                for (const { target, borderBoxSize } of changes) {
                    measure((target as HTMLElement).dataset["row"], borderBoxSize[0]?.blockSize ?? 0);
                }
                keepPosition();
                updateRange();
            }),
        [],
    );
    useEffect(() => () => observer.disconnect(), []);
    useLayoutEffect(() => {
        if (isSending || isAtEnd.peek()) toEnd();
        else updateRange();
    }, [items, isSending]);
    // Rendering other rows changes the estimates, and with them the position of the end. The range is recomputed only on
    // scroll, because two ranges that lead to each other would loop without ever being painted.
    useLayoutEffect(keepPosition, [range.value]);
    useLayoutEffect(() => {
        const view = scroller.current;
        if (view === null) return;
        const viewportObserver = new ResizeObserver(() => (isAtEnd.peek() ? toEnd() : updateRange()));
        viewportObserver.observe(view);
        return () => viewportObserver.disconnect();
    }, []);

    const { from, to } = range.value;
    const visible = items.slice(from, Math.min(to, items.length));
    return (
        <div class="feed-frame">
            <div ref={scroller} class="feed" onScroll={onScroll} tabIndex={0} role="region" aria-label={label}>
                <div class="feed-column" role="feed" aria-busy={isBusy} aria-label={label}>
                    <div style={{ height: `${rows.topAt(from)}px` }} aria-hidden="true" />
                    {visible.map((item, index) => (
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
            {!isAtEnd.value && <ToEnd onClick={toEnd} />}
        </div>
    );
}

/** It goes away at the end. If the keyboard is on it then, Tab would begin at the navigation again. */
function ToEnd({ onClick }: { onClick: () => void }) {
    const frame = useRef<HTMLDivElement>(null);
    useLayoutEffect(() => {
        const leaving = frame.current;
        return () => void (leaving?.querySelector(":focus-visible") && focusComposer());
    }, []);
    return (
        <div ref={frame} class="feed-end">
            <Button isSmall icon="down" onClick={onClick}>
                {t("chat.to-end")}
            </Button>
        </div>
    );
}

interface RowProps {
    id: string;
    observer: ResizeObserver;
    /** Called as soon as the row is rendered, so that its height is known after it is unmounted. */
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

/**
 * Positions of rows. Rows not measured yet are assumed to have the same height, always: an average of the measured ones
 * would move all rows below them with each measurement, while the view shows where they were.
 */
class Rows {
    private ids: readonly string[] = [];
    private readonly places = new Map<string, number>();
    private readonly heights = new Map<string, number>();
    private tops: number[] = [0];
    private isStale = true;

    set(ids: readonly string[]): void {
        if (ids.length === this.ids.length && ids.every((id, index) => id === this.ids[index])) return;
        this.ids = ids;
        this.places.clear();
        ids.forEach((id, index) => this.places.set(id, index));
        this.isStale = true;
    }

    /** Records a height. Returns the difference from the assumed height. */
    measure(id: string, height: number): number {
        const before = this.heights.get(id);
        if (before === height) return 0;
        this.heights.set(id, height);
        this.isStale = true;
        return height - (before ?? GUESS_PX);
    }

    get height(): number {
        return this.topAt(this.ids.length);
    }

    topOf(id: string): number {
        return this.topAt(this.places.get(id) ?? 0);
    }

    topAt(index: number): number {
        this.recompute();
        return this.tops[Math.min(index, this.ids.length)] ?? 0;
    }

    below(index: number): number {
        return this.height - this.topAt(index);
    }

    between(top: number, bottom: number): Range {
        this.recompute();
        const from = Math.max(0, this.firstBeyond(top) - 1);
        return { from, to: Math.min(this.ids.length, Math.max(from + 1, this.firstBeyond(bottom))) };
    }

    /** The first row that begins below the given offset. */
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

    private recompute(): void {
        if (!this.isStale) return;
        let top = 0;
        this.tops = new Array<number>(this.ids.length + 1);
        this.ids.forEach((id, index) => {
            this.tops[index] = top;
            top += this.heights.get(id) ?? GUESS_PX;
        });
        this.tops[this.ids.length] = top;
        this.isStale = false;
    }
}
