/** Light or dark theme: the system's preference unless the user chooses one. */
import { computed, effect, signal } from "@preact/signals";
import { store, readStored } from "../browser/storage";

export type Theme = "auto" | "light" | "dark";
const NEXT: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };

const isTheme = (value: string | null): value is Theme => value !== null && value in NEXT;
const stored = readStored("theme");
const system = matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(system.matches);
system.addEventListener("change", (change) => (systemIsDark.value = change.matches));

export const theme = signal<Theme>(isTheme(stored) ? stored : "auto");
export const isDark = computed(() => (theme.value === "auto" ? systemIsDark.value : theme.value === "dark"));

effect(() => {
    document.documentElement.dataset["theme"] = isDark.value ? "dark" : "light";
});

export function nextTheme(): void {
    theme.value = NEXT[theme.value];
    store("theme", theme.value);
}
