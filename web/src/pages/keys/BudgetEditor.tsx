/** Changes the token budget of a key or a user. */
import { useSignal } from "@preact/signals";
import { api } from "../../api/client";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { TextField } from "../../components/Field";
import { useSaving } from "../../components/saving";
import { t } from "../../i18n";

interface Props {
    title: string;
    hint: string;
    /** What is changed, such as `/keys/ID`. */
    path: string;
    /** The limits in force; null for an empty field. */
    limits: { readonly per_day: number | null; readonly per_month: number | null };
    /** What an empty field stands for. */
    whenEmpty: 0 | null;
    onClose: () => void;
    onSaved: () => void;
}

export function BudgetEditor({ title, hint, path, limits, whenEmpty, onClose, onSaved }: Props) {
    const day = useSignal(String(limits.per_day ?? ""));
    const month = useSignal(String(limits.per_month ?? ""));
    const { error, save } = useSaving(onClose);
    const entered = (text: string): number | null => (text === "" ? whenEmpty : Number(text));
    const submit = async (): Promise<void> => {
        await api.patch(path, { tokens_per_day: entered(day.value), tokens_per_month: entered(month.value) });
        onSaved();
    };
    return (
        <Dialog title={title} onClose={onClose}>
            <form class="stack" onSubmit={(event) => void save(event, submit)}>
                <TextField
                    label={t("keys.tokens-day")}
                    type="number"
                    value={day.value}
                    onValue={(value) => (day.value = value)}
                    hint={hint}
                    isOptional
                    autofocus
                />
                <TextField
                    label={t("keys.tokens-month")}
                    type="number"
                    value={month.value}
                    onValue={(value) => (month.value = value)}
                    error={error.value}
                    isOptional
                />
                <div class="dialog-foot">
                    <Button onClick={onClose}>{t("action.cancel")}</Button>
                    <Button kind="primary" type="submit">
                        {t("action.save")}
                    </Button>
                </div>
            </form>
        </Dialog>
    );
}
