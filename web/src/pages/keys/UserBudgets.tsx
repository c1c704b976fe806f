/** The token budgets of all users, for admins. */
import { useSignal } from "@preact/signals";
import { api } from "../../api/client";
import { useLoaded } from "../../api/loading";
import { Button, IconButton } from "../../components/Button";
import { Failed } from "../../components/Empty";
import { t } from "../../i18n";
import { type Budget, BudgetMeter } from "./Budget";
import { BudgetEditor } from "./BudgetEditor";
import { loadPages } from "./pages";

interface User {
    readonly user: string;
    readonly budgets: readonly Budget[];
    /** The user's own limits: 0 is no limit; where one is missing, the server's setting applies. */
    readonly token_limits: { readonly per_day?: number; readonly per_month?: number };
}

const loadUsers = (pages: number, signal: AbortSignal) =>
    loadPages(
        async (query) => (await api.get<{ readonly users: readonly User[] }>("/users", query, signal)).users,
        (user) => user.user,
        pages,
    );

export function UserBudgets() {
    const pages = useSignal(1);
    const edited = useSignal<User | null>(null);
    const { state, reload } = useLoaded((signal) => loadUsers(pages.value, signal), [pages.value]);
    const { value, error } = state.value;
    if (error !== null) return <Failed error={error} onRetry={() => void reload()} />;
    return (
        <section class="stack of-all">
            <h2>{t("budgets.of-users")}</h2>
            <p class="soft">{t("budgets.of-users-about")}</p>
            <ul class="items dense" aria-label={t("budgets.of-users")}>
                {value?.items.map((each) => (
                    <Item key={each.user} of={each} onEdit={() => (edited.value = each)} />
                ))}
            </ul>
            {value?.isComplete === false && (
                <div class="more">
                    <Button onClick={() => (pages.value += 1)}>{t("chat.more")}</Button>
                </div>
            )}
            {edited.value !== null && (
                <BudgetEditor
                    title={t("budgets.of-user", { user: edited.value.user })}
                    hint={t("budgets.why")}
                    path={`/users/${encodeURIComponent(edited.value.user)}`}
                    limits={{
                        per_day: edited.value.token_limits.per_day ?? null,
                        per_month: edited.value.token_limits.per_month ?? null,
                    }}
                    whenEmpty={null}
                    onClose={() => (edited.value = null)}
                    onSaved={() => void reload()}
                />
            )}
        </section>
    );
}

function Item({ of: { user, budgets }, onEdit }: { of: User; onEdit: () => void }) {
    return (
        <li class="card item">
            <div class="item-head">
                <h3 class="grow item-text">{user}</h3>
                <div class="row">
                    <IconButton icon="edit" isSmall label={t("budgets.of-user", { user })} onClick={onEdit} />
                </div>
            </div>
            {budgets.length === 0 && (
                <div class="item-facts">
                    <span>{t("keys.no-budget")}</span>
                </div>
            )}
            {budgets.length > 0 && (
                <div class="budgets">
                    {budgets.map((budget) => (
                        <div key={budget.period}>
                            <p class="small">{t(`budgets.${budget.period}`)}</p>
                            <BudgetMeter budget={budget} name={`${user}: ${t(`budgets.${budget.period}`)}`} />
                        </div>
                    ))}
                </div>
            )}
        </li>
    );
}
