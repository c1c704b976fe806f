/** The token budgets of all users, for admins. */
import { useSignal } from "@preact/signals";
import { api } from "../../api/client";
import { useLoaded } from "../../api/loading";
import { Button } from "../../components/Button";
import { Failed } from "../../components/Empty";
import { t } from "../../i18n";
import { type Budget, BudgetItem } from "./Budget";

interface User {
    readonly user: string;
    readonly budgets: readonly Budget[];
}

const PAGE = 1000;

async function load(pages: number, signal: AbortSignal): Promise<{ users: readonly User[]; isComplete: boolean }> {
    const users: User[] = [];
    while (users.length < pages * PAGE) {
        const query = { limit: PAGE, after: users.at(-1)?.user };
        const page = (await api.get<{ readonly users: readonly User[] }>("/users", query, signal)).users;
        users.push(...page);
        if (page.length < PAGE) return { users, isComplete: true };
    }
    return { users, isComplete: false };
}

export function UserBudgets() {
    const pages = useSignal(1);
    const { state, reload } = useLoaded((signal) => load(pages.value, signal), [pages.value]);
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
                {t(value?.isComplete && items.length === 0 ? "budgets.of-nobody" : "budgets.of-users-about")}{" "}
                <code>dragoman users set NAME --tokens-per-month TOKENS</code>
            </p>
            {items.length > 0 && (
                <ul class="items dense budgets" aria-label={t("budgets.of-users")}>
                    {items}
                </ul>
            )}
            {value?.isComplete === false && (
                <div class="more">
                    <Button onClick={() => (pages.value += 1)}>{t("chat.more")}</Button>
                </div>
            )}
        </section>
    );
}
