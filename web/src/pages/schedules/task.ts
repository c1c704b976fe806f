/** What a scheduled task is, and the schedules that can be chosen by name. Pure. */

export const PRESETS = [
    ["0 9 * * *", "schedules.preset.daily"],
    ["0 9 * * mon-fri", "schedules.preset.weekdays"],
    ["0 * * * *", "schedules.preset.hourly"],
    ["*/15 * * * *", "schedules.preset.quarters"],
    ["0 9 * * mon", "schedules.preset.weekly"],
    ["0 9 1 * *", "schedules.preset.monthly"],
] as const;

/** The text of a schedule that has a name. */
export const presetName = (cron: string) => PRESETS.find(([each]) => each === cron)?.[1];

/** A scheduled task, as Blade returns it. */
export interface Task {
    readonly id: string;
    readonly title: string;
    readonly prompt: string;
    readonly cron: string;
    readonly timezone: string;
    readonly enabled: boolean;
    readonly expires_at: string | null;
    readonly skip_confirmations: boolean;
    readonly model: string | null;
    /** The agent; null is the server's default one. */
    readonly solution_id: string | null;
    readonly next_run_at: string | null;
    readonly last_run_at: string | null;
}
