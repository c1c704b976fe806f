/** The token budgets of all users, for admins. */
import { api } from "../../api/client";
import { useLoaded } from "../../api/loading";
import { Failed } from "../../components/Empty";
import { t } from "../../i18n";
import { type Budget, BudgetItem } from "./Budget";

interface User {
    readonly user: string;
    readonly budgets: readonly Budget[];
}

export function UserBudgets() {
    const { state, reload } = useLoaded((signal) => api.get<{ readonly users: readonly User[] }>("/users", {}, signal));
    const { value, error } = state.value;
    if (error !== null) return <Failed error={error} onRetry={() => void reload()} />;
    const items = (value?.users ?? []).flatMap(({ user, budgets }) =>
        budgets.map((budget) => {
            const name = t(`budgets.of-${budget.period}`, { user });
            return <BudgetItem key={name} budget={budget} name={name} heading="h3" />;
        }),
    );
    return (
        <section class="stack of-all">
            <h2>{t("budgets.of-users")}</h2>
            <p class="soft">
                {t(value !== null && items.length === 0 ? "budgets.of-nobody" : "budgets.of-users-about")}{" "}
                <code>dragoman users set NAME --tokens-per-month TOKENS</code>
            </p>
            {items.length > 0 && (
                <ul class="items dense budgets" aria-label={t("budgets.of-users")}>
                    {items}
                </ul>
            )}
        </section>
    );
}
