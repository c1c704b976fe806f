/** A memory, as Blade returns it. */
export interface Memory {
    readonly id: number;
    readonly type: "feedback" | "experience";
    readonly content: string;
    readonly skill_name: string | null;
    readonly record_type: string | null;
    readonly topic: string | null;
    readonly superseded_by: number | null;
    readonly write_reason: string | null;
    readonly created_at: string;
    readonly updated_at: string | null;
    readonly hit_count: number;
    readonly last_hit_at: string | null;
    readonly disabled: boolean;
    readonly source_session: string;
}
