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
    readonly next_run_at: string | null;
    readonly last_run_at: string | null;
}
