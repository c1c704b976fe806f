/** Asks for the key when the server wants one, before anything else is fetched. */
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { api, isKeyRefused } from "../api/client";
import { ApiError } from "../api/errors";
import { key, useKey } from "../api/key";
import { Button } from "../components/Button";
import { TextField } from "../components/Field";
import { Failed } from "../components/Empty";
import { Loading } from "../components/Spinner";
import { t } from "../i18n";

const WHO = "/api/auth/me";

type State = "asking" | "open" | "closed" | { failed: unknown };

export function KeyGate({ children }: { children: ComponentChildren }) {
    const state = useSignal<State>("asking");
    const look = async (): Promise<void> => {
        try {
            await api.get(WHO);
            isKeyRefused.value = false;
            state.value = "open";
        } catch (error) {
            const isRefused = error instanceof ApiError && error.status === 401;
            // A server that does not speak Blade has no such route; each page then says what it misses.
            const isMissing = error instanceof ApiError && error.status === 404;
            state.value = isRefused ? "closed" : isMissing ? "open" : { failed: error };
        }
    };
    useEffect(() => void look(), [key.value]);
    if (typeof state.value === "object") return <Failed error={state.value.failed} onRetry={() => void look()} />;
    if (state.value === "asking") return <Loading />;
    if (state.value === "closed" || isKeyRefused.value) return <KeyForm onKey={() => void look()} />;
    return <>{children}</>;
}

function KeyForm({ onKey }: { onKey: () => void }) {
    const entered = useSignal("");
    const wasWrong = key.value !== null;
    const submit = (event: Event): void => {
        event.preventDefault();
        const next = entered.value.trim();
        if (next === key.value) onKey();
        else if (next) useKey(next);
    };
    return (
        <div class="page">
            <form class="page-body key-form stack" onSubmit={submit}>
                <h1>{t("key.title")}</h1>
                <p class="soft">{t("key.why")}</p>
                <TextField
                    label={t("key.field")}
                    type="password"
                    value={entered.value}
                    onValue={(value) => (entered.value = value)}
                    error={wasWrong ? t("key.wrong") : null}
                    hint={t("key.hint")}
                    autofocus
                />
                <div>
                    <Button kind="primary" type="submit" disabled={entered.value.trim() === ""}>
                        {t("key.use")}
                    </Button>
                </div>
            </form>
        </div>
    );
}
