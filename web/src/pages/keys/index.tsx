/** The user's API keys. A key is shown only once, when it is created. */
import { useSignal } from "@preact/signals";
import { api } from "../../api/client";
import { isAdmin, key } from "../../api/key";
import { useLoaded } from "../../api/loading";
import { Button, IconButton } from "../../components/Button";
import { CopyButton } from "../../components/CopyButton";
import { confirmed, Dialog } from "../../components/Dialog";
import { Editable } from "../../components/Editable";
import { Empty, Failed } from "../../components/Empty";
import { TextField } from "../../components/Field";
import { Loading } from "../../components/Spinner";
import { useSaving } from "../../components/saving";
import { showMessage, showError } from "../../components/Toast";
import { ago, dateTime, t } from "../../i18n";
import { AllKeys } from "./AllKeys";
import { type Budget, BudgetMeter } from "./Budget";
import { UserBudgets } from "./UserBudgets";
import "../pages.css";

interface ApiKey {
    readonly id: string;
    readonly name: string;
    readonly masked: string;
    readonly created_at: string;
    readonly last_used_at: string | null;
}

const PATH = "/api/user/api-keys";
const NAME = 50;

export default function Page() {
    const { state, reload } = useLoaded((signal) => api.get<readonly ApiKey[]>(PATH, {}, signal), []);
    const renamed = useSignal<ApiKey | "new" | null>(null);
    const made = useSignal<string | null>(null);
    const { value, error } = state.value;
    const save = async (name: string): Promise<void> => {
        const edited = renamed.value;
        if (edited === "new") made.value = (await api.post<{ plaintext: string }>(`${PATH}/`, { name })).plaintext;
        else if (edited !== null) await api.patch(`${PATH}/${edited.id}`, { name });
        void reload();
    };
    return (
        <div class="page">
            <div class="page-body">
                <header class="page-head">
                    <h1>{t("nav.keys")}</h1>
                    <Editable explains>
                        <Button kind="primary" icon="plus" onClick={() => (renamed.value = "new")}>
                            {t("keys.new")}
                        </Button>
                    </Editable>
                    <p class="soft">{t("keys.about")}</p>
                </header>
                <Budgets />
                {value === null && error === null && <Loading />}
                {error !== null && <Failed error={error} onRetry={() => void reload()} />}
                {value !== null && value.length === 0 && (
                    <Empty icon="key" title={t("keys.empty")}>
                        <p>{t("keys.empty-why")}</p>
                    </Empty>
                )}
                {value !== null && (
                    <ul class="items" aria-label={t("nav.keys")}>
                        {value.map((each) => (
                            <Item
                                key={each.id}
                                apiKey={each}
                                onRename={() => (renamed.value = each)}
                                onChanged={() => void reload()}
                            />
                        ))}
                    </ul>
                )}
                {isAdmin() ? (
                    <>
                        <AllKeys />
                        <UserBudgets />
                    </>
                ) : (
                    <p class="soft of-all">
                        {t("keys.not-admin")} <code>dragoman keys create --name admin --scopes admin</code>
                    </p>
                )}
            </div>
            {renamed.value !== null && (
                <Naming
                    name={renamed.value === "new" ? "" : renamed.value.name}
                    isNew={renamed.value === "new"}
                    onClose={() => (renamed.value = null)}
                    onSave={save}
                />
            )}
            {made.value !== null && <NewKey plaintext={made.value} onClose={() => (made.value = null)} />}
        </div>
    );
}

/** What is left of the token budgets. Nothing if there are none. */
function Budgets() {
    const { state } = useLoaded((signal) => api.get<{ readonly budgets: readonly Budget[] }>("/usage", {}, signal), []);
    const budgets = state.value.value?.budgets ?? [];
    if (budgets.length === 0) return null;
    return (
        <ul class="items budgets" aria-label={t("budgets.title")}>
            {budgets.map((each) => {
                const name = t(`budgets.${each.holder}-${each.period}`);
                return (
                    <li key={name} class="card item">
                        <h2 class="item-text">{name}</h2>
                        <BudgetMeter budget={each} name={name} />
                    </li>
                );
            })}
        </ul>
    );
}

function Item({ apiKey, onRename, onChanged }: { apiKey: ApiKey; onRename: () => void; onChanged: () => void }) {
    const isOwn = isMasked(key.value, apiKey.masked);
    const revoke = async (): Promise<void> => {
        const text = t(isOwn ? "keys.revoke-own" : "keys.revoke-why", { name: apiKey.name });
        if (!(await confirmed({ title: t("keys.revoke"), text, yes: t("keys.revoke") }))) return;
        try {
            await api.delete(`${PATH}/${apiKey.id}`);
            showMessage(t("keys.revoked", { name: apiKey.name }));
            onChanged();
        } catch (error) {
            showError(error);
        }
    };
    return (
        <li class="card item" data-id={apiKey.id}>
            <div class="item-head">
                <h2 class="grow item-text">{apiKey.name}</h2>
                <Editable>
                    <div class="row">
                        <IconButton
                            icon="edit"
                            isSmall
                            label={t("keys.rename")}
                            about={apiKey.name}
                            onClick={onRename}
                        />
                        <IconButton
                            icon="trash"
                            isSmall
                            label={t("keys.revoke")}
                            about={apiKey.name}
                            onClick={() => void revoke()}
                        />
                    </div>
                </Editable>
            </div>
            <div class="item-facts">
                <code>{apiKey.masked}</code>
                {isOwn && <span class="badge accent">{t("keys.own")}</span>}
                <span title={dateTime(apiKey.created_at)}>{t("keys.created", { when: ago(apiKey.created_at) })}</span>
                <span>
                    {apiKey.last_used_at === null
                        ? t("keys.unused")
                        : t("keys.used", { when: ago(apiKey.last_used_at) })}
                </span>
            </div>
        </li>
    );
}

/** Whether a key matches the masked form `sk-…-...ABCD`. */
function isMasked(plain: string | null, masked: string): boolean {
    const [prefix = "", last = ""] = masked.split("...");
    return plain !== null && last !== "" && plain.startsWith(prefix) && plain.endsWith(last);
}

interface NamingProps {
    name: string;
    isNew: boolean;
    onClose: () => void;
    onSave: (name: string) => Promise<void>;
}

function Naming({ name, isNew, onClose, onSave }: NamingProps) {
    const entered = useSignal(name);
    const { error, save } = useSaving(onClose);
    const submit = (): Promise<void> => onSave(entered.value.trim());
    return (
        <Dialog title={t(isNew ? "keys.new" : "keys.rename")} onClose={onClose}>
            <form class="stack" onSubmit={(event) => void save(event, submit)}>
                <TextField
                    label={t("keys.name")}
                    value={entered.value}
                    onValue={(value) => (entered.value = value)}
                    error={error.value}
                    hint={t("keys.name-why")}
                    maxLength={NAME}
                    autofocus
                />
                <div class="dialog-foot">
                    <Button onClick={onClose}>{t("action.cancel")}</Button>
                    <Button kind="primary" type="submit" disabled={entered.value.trim() === ""}>
                        {t(isNew ? "action.create" : "action.save")}
                    </Button>
                </div>
            </form>
        </Dialog>
    );
}

function NewKey({ plaintext, onClose }: { plaintext: string; onClose: () => void }) {
    return (
        <Dialog title={t("keys.created-title")} onClose={onClose}>
            <p class="note">{t("keys.shown-once")}</p>
            <div class="secret">
                <code>{plaintext}</code>
                <CopyButton text={plaintext} label={t("keys.copy")} />
            </div>
            <div class="dialog-foot">
                <Button kind="primary" onClick={onClose}>
                    {t("keys.done")}
                </Button>
            </div>
        </Dialog>
    );
}
