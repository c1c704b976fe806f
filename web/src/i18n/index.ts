/** The console's language. Components that call `t("…")` are rendered again when it changes. */
import { computed, effect, signal } from "@preact/signals";
import { store, readStored } from "../browser/storage";
import { en } from "./en";
import { pagesEn } from "./pages.en";
import { pagesZh } from "./pages.zh";
import { zh } from "./zh";

export type Key = keyof typeof en | keyof typeof pagesEn;
export type Language = "en" | "zh";
type Values = Readonly<Record<string, string | number>>;

const TABLES: Record<Language, Record<Key, string>> = { en: { ...en, ...pagesEn }, zh: { ...zh, ...pagesZh } };

const preferred: Language = navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
const chosen = readStored("language");
export const language = signal<Language>(chosen === "en" || chosen === "zh" ? chosen : preferred);

effect(() => {
    document.documentElement.lang = language.value === "zh" ? "zh-CN" : "en";
});

export function choose(next: Language): void {
    store("language", next);
    language.value = next;
}

/** The text for a key, with `{names}` replaced by values. Of `singular|plural`, the value `count` decides. */
export function t(key: Key, values?: Values): string {
    const forms = TABLES[language.value][key].split("|");
    const sentence = (String(values?.["count"]) === "1" ? forms[0] : forms.at(-1)) ?? "";
    return values === undefined
        ? sentence
        : sentence.replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

const moments = computed(() => ({
    minute: new Intl.DateTimeFormat(language.value, { dateStyle: "medium", timeStyle: "short" }),
    time: new Intl.DateTimeFormat(language.value, { timeStyle: "short" }),
    day: new Intl.DateTimeFormat(language.value, { month: "short", day: "numeric" }),
    count: new Intl.NumberFormat(language.value),
    ago: new Intl.RelativeTimeFormat(language.value, { numeric: "auto", style: "short" }),
}));

/** A date and time in the user's time zone. */
export const dateTime = (at: string | Date): string => moments.value.minute.format(new Date(at));

/** The time of a moment today; of other days, the date too. */
export const clock = (at: string): string => {
    const moment = new Date(at);
    const isToday = moment.toDateString() === new Date().toDateString();
    return isToday ? moments.value.time.format(moment) : moments.value.minute.format(moment);
};

export const count = (value: number): string => moments.value.count.format(value);

/** `820 B`, `3.4 KB`, `10 MB`, in units of 1024, like the server. */
export function size(bytes: number): string {
    if (bytes < 1024) return `${bytes} B`;
    const [value, unit] = bytes < 1024 * 1024 ? [bytes / 1024, "KB"] : [bytes / 1024 / 1024, "MB"];
    return `${count(Math.round(value * 10) / 10)} ${unit}`;
}

/** A relative time in minutes, hours or days; after a week, the date. */
export function ago(at: string): string {
    const minutes = Math.round((new Date(at).getTime() - Date.now()) / 60_000);
    if (minutes >= 0) return moments.value.ago.format(0, "second");
    if (minutes > -60) return moments.value.ago.format(minutes, "minute");
    if (minutes > -60 * 24) return moments.value.ago.format(Math.round(minutes / 60), "hour");
    if (minutes > -60 * 24 * 7) return moments.value.ago.format(Math.round(minutes / 60 / 24), "day");
    return moments.value.day.format(new Date(at));
}

/** `0.4 s`, `12 s`, `3 min 5 s`. */
export function duration(ms: number): string {
    if (ms < 1000) return `${Math.round(ms)} ms`;
    const seconds = ms / 1000;
    if (seconds < 10) return `${seconds.toFixed(1)} s`;
    if (seconds < 60) return `${Math.round(seconds)} s`;
    return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}
