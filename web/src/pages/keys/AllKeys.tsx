/** The keys of all users, for admins, with their token budgets. */
import { useSignal } from "@preact/signals";
import { api } from "../../api/client";
import { useLoaded } from "../../api/loading";
import { Button, IconButton } from "../../components/Button";
import { Failed } from "../../components/Empty";
import { count, dateTime, t } from "../../i18n";
import { BudgetEditor } from "./BudgetEditor";
import { loadPages } from "./pages";

interface UserKey {
    readonly key_id: string;
    readonly name: string;
    readonly user: string;
    readonly masked_key: string;
    readonly scopes: readonly string[];
    readonly expires_at: string | null;
    /** 0 is no limit. */
    readonly token_limits: { readonly per_day: number; readonly per_month: number };
}

const loadKeys = (pages: number, signal: AbortSignal) =>
    loadPages(
        async (query) => (await api.get<{ readonly keys: readonly UserKey[] }>("/keys", query, signal)).keys,
        (key) => key.key_id,
        pages,
    );

export function AllKeys() {
    const pages = useSignal(1);
    const { state, reload } = useLoaded((signal) => loadKeys(pages.value, signal), [pages.value]);
    const edited = useSignal<UserKey | null>(null);
    const { value, error } = state.value;
    if (error !== null) return <Failed error={error} onRetry={() => void reload()} />;
    return (
        <section class="stack of-all">
            <h2>{t("keys.all")}</h2>
            <p class="soft">{t("keys.all-about")}</p>
            <ul class="items dense" aria-label={t("keys.all")}>
                {value?.items.map((each) => (
                    <li key={each.key_id} class="card item">
                        <div class="item-head">
                            <h3 class="grow item-text">
                                {each.user} · {each.name}
                            </h3>
                            <div class="row">
                                <IconButton
                                    icon="edit"
                                    isSmall
                                    label={t("keys.budget-of", { name: each.name })}
                                    onClick={() => (edited.value = each)}
                                />
                            </div>
                        </div>
                        <div class="item-facts">
                            <code>{each.masked_key}</code>
                            <span>{each.scopes.join(", ")}</span>
                            {each.expires_at !== null && (
                                <span>{t("keys.expires", { when: dateTime(each.expires_at) })}</span>
                            )}
                            <Limits limits={each.token_limits} />
                        </div>
                    </li>
                ))}
            </ul>
            {value?.isComplete === false && (
                <div class="more">
                    <Button onClick={() => (pages.value += 1)}>{t("chat.more")}</Button>
                </div>
            )}
            {edited.value !== null && (
                <BudgetEditor
                    title={t("keys.budget-of", { name: edited.value.name })}
                    hint={t("keys.budget-why")}
                    path={`/keys/${edited.value.key_id}`}
                    limits={{
                        per_day: edited.value.token_limits.per_day || null,
                        per_month: edited.value.token_limits.per_month || null,
                    }}
                    whenEmpty={0}
                    onClose={() => (edited.value = null)}
                    onSaved={() => void reload()}
                />
            )}
        </section>
    );
}

function Limits({ limits: { per_day, per_month } }: { limits: UserKey["token_limits"] }) {
    if (per_day === 0 && per_month === 0) return <span>{t("keys.no-budget")}</span>;
    return (
        <>
            {per_day > 0 && <span>{t("keys.per-day", { tokens: count(per_day) })}</span>}
            {per_month > 0 && <span>{t("keys.per-month", { tokens: count(per_month) })}</span>}
        </>
    );
}
