/** A session in the list of the lens. */
export interface SessionItem {
    readonly id: string;
    readonly intent: string;
    readonly solution_id: string | null;
    readonly created_at: string;
}
