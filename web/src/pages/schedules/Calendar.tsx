/** A month's scheduled runs, in the user's time zone. */
import { useSignal } from "@preact/signals";
import { api } from "../../api/client";
import { useLoaded } from "../../api/loading";
import { IconButton } from "../../components/Button";
import { Failed } from "../../components/Empty";
import { language, t } from "../../i18n";
import type { Task } from "./task";

interface TaskRuns {
    readonly task_id: string;
    readonly title: string;
    readonly occurrences: readonly string[];
    readonly truncated?: boolean;
}

interface ScheduledRun {
    readonly at: Date;
    readonly task: string;
    readonly title: string;
}

/** The number of runs listed for a day before "n more". */
const LISTED = 4;
const COLOURS = 6;

export function Calendar({ tasks }: { tasks: readonly Task[] }) {
    const month = useSignal(firstOf(new Date()));
    const first = weekOf(month.value);
    const end = new Date(first.getFullYear(), first.getMonth(), first.getDate() + 42);
    const now = new Date();
    const from = first > now ? first : now;
    const { state, reload } = useLoaded(
        (signal) => (from < end ? fetchRuns(from, end, signal) : Promise.resolve([])),
        [first.getTime(), tasks],
    );
    const { value, error } = state.value;
    const days = Array.from(
        { length: 42 },
        (_, at) => new Date(first.getFullYear(), first.getMonth(), first.getDate() + at),
    );
    const runs = byDay(value ?? []);
    const colours = new Map(tasks.map((task, index) => [task.id, index % COLOURS]));
    const go = (by: number): void =>
        void (month.value = new Date(month.value.getFullYear(), month.value.getMonth() + by, 1));
    const name = new Intl.DateTimeFormat(language.value, { month: "long", year: "numeric" }).format(month.value);
    const today = dayOf(new Date());
    return (
        <section aria-label={t("schedules.calendar")}>
            <div class="calendar-head">
                <span class="calendar-back">
                    <IconButton icon="chevron" label={t("schedules.month-before")} onClick={() => go(-1)} />
                </span>
                <h2 aria-live="polite">{name}</h2>
                <IconButton icon="chevron" label={t("schedules.month-after")} onClick={() => go(1)} />
            </div>
            {error !== null && <Failed error={error} onRetry={() => void reload()} />}
            {value?.some((entry) => entry.truncated) && <p class="note">{t("schedules.truncated")}</p>}
            <div class="calendar" role="table" aria-label={name}>
                <div role="row" class="calendar-week">
                    {days.slice(0, 7).map((day) => (
                        <span key={day.getDay()} role="columnheader" class="calendar-weekday">
                            {new Intl.DateTimeFormat(language.value, { weekday: "short" }).format(day)}
                        </span>
                    ))}
                </div>
                {[0, 7, 14, 21, 28, 35].map((from) => (
                    <div key={from} role="row" class="calendar-week">
                        {days.slice(from, from + 7).map((day) => (
                            <Day
                                key={day.getTime()}
                                day={day}
                                runs={runs.get(dayOf(day)) ?? []}
                                colours={colours}
                                isToday={dayOf(day) === today}
                                isOther={day.getMonth() !== month.value.getMonth()}
                            />
                        ))}
                    </div>
                ))}
            </div>
        </section>
    );
}

/** Past runs are listed with the tasks. */
function fetchRuns(from: Date, to: Date, signal: AbortSignal): Promise<readonly TaskRuns[]> {
    return api.get("/api/scheduled-tasks/calendar", { from: from.toISOString(), to: to.toISOString() }, signal);
}

interface DayProps {
    day: Date;
    runs: readonly ScheduledRun[];
    colours: ReadonlyMap<string, number>;
    isToday: boolean;
    isOther: boolean;
}

function Day({ day, runs, colours, isToday, isOther }: DayProps) {
    const time = new Intl.DateTimeFormat(language.value, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
    const kind = ["calendar-day", isToday && "today", isOther && "other", runs.length > 0 && "busy"];
    return (
        <div role="cell" class={kind.filter(Boolean).join(" ")} aria-current={isToday ? "date" : undefined}>
            <span class="calendar-number" aria-hidden="true">
                {day.getDate()}
            </span>
            <span class="calendar-name">
                {new Intl.DateTimeFormat(language.value, { weekday: "short", day: "numeric", month: "short" }).format(
                    day,
                )}
            </span>
            {runs.slice(0, LISTED).map((each) => (
                <span
                    key={`${each.task}${each.at.getTime()}`}
                    class={`calendar-due colour-${colours.get(each.task) ?? 0}`}
                    title={each.title}
                >
                    <b>{time.format(each.at)}</b> {each.title}
                </span>
            ))}
            {runs.length > LISTED && (
                <span class="soft calendar-more">{t("schedules.more", { count: runs.length - LISTED })}</span>
            )}
        </div>
    );
}

function byDay(entries: readonly TaskRuns[]): Map<string, ScheduledRun[]> {
    const days = new Map<string, ScheduledRun[]>();
    for (const { task_id, title, occurrences } of entries) {
        for (const occurrence of occurrences) {
            const at = new Date(occurrence);
            const day = days.get(dayOf(at)) ?? [];
            day.push({ at, task: task_id, title });
            days.set(dayOf(at), day);
        }
    }
    for (const day of days.values()) day.sort((one, other) => one.at.getTime() - other.at.getTime());
    return days;
}

const dayOf = (at: Date): string => `${at.getFullYear()}-${at.getMonth()}-${at.getDate()}`;
const firstOf = (at: Date): Date => new Date(at.getFullYear(), at.getMonth(), 1);

/** The Monday of a month's first week. */
function weekOf(month: Date): Date {
    const before = (month.getDay() + 6) % 7;
    return new Date(month.getFullYear(), month.getMonth(), 1 - before);
}
