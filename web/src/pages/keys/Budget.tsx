/** A token budget, and what is left of it. */
import { count, dateTime, t } from "../../i18n";

export interface Budget {
    readonly holder: "user" | "key";
    readonly period: "day" | "month";
    readonly limit: number;
    readonly used: number;
    readonly left: number;
    readonly resets_at: string;
}

export function BudgetItem(props: { budget: Budget; name: string; heading: "h2" | "h3" }) {
    const { budget, name, heading: Heading } = props;
    const { used, limit, left, resets_at } = budget;
    return (
        <li class="card item">
            <Heading class="item-text">{name}</Heading>
            <meter aria-label={name} min={0} max={limit} high={0.9 * limit} optimum={0} value={Math.min(used, limit)} />
            <div class="item-facts">
                <span>{t("budgets.used", { used: count(used), limit: count(limit) })}</span>
                {left === 0 && <span class="badge warning">{t("budgets.used-up")}</span>}
                <span>{t("budgets.resets", { when: dateTime(resets_at) })}</span>
            </div>
        </li>
    );
}
