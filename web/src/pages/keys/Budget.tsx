/** Token budgets, and what is left of them. */
import { count, dateTime, t } from "../../i18n";

export interface Budget {
    readonly holder: "user" | "key";
    readonly period: "day" | "month";
    readonly limit: number;
    readonly used: number;
    readonly left: number;
    readonly resets_at: string;
}

/** What was used of a budget, and when it begins again. */
export function BudgetMeter({ budget: { used, limit, left, resets_at }, name }: { budget: Budget; name: string }) {
    return (
        <>
            <meter aria-label={name} min={0} max={limit} high={0.9 * limit} optimum={0} value={Math.min(used, limit)} />
            <div class="item-facts">
                <span>{t("budgets.used", { used: count(used), limit: count(limit) })}</span>
                {left === 0 && <span class="badge warning">{t("budgets.used-up")}</span>}
                <span>{t("budgets.resets", { when: dateTime(resets_at) })}</span>
            </div>
        </>
    );
}
