/** Asks for an API key, if the server requires one, before anything else is fetched. */
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { api, isKeyRefused } from "../api/client";
import { ApiError } from "../api/errors";
import { key, scopes, useKey } from "../api/key";
import { Button } from "../components/Button";
import { TextField } from "../components/Field";
import { Failed } from "../components/Empty";
import { Loading } from "../components/Spinner";
import { t } from "../i18n";
import { LoginButton } from "./LoginButton";

const WHO = "/api/auth/me";

type State = "asking" | "open" | "closed" | { failed: unknown };

export function KeyGate({ children }: { children: ComponentChildren }) {
    const state = useSignal<State>("asking");
    /** An answer for an earlier key says nothing about the present one. */
    const check = async (signal?: AbortSignal): Promise<void> => {
        try {
            scopes.value = (await api.get<{ scopes?: readonly string[] }>(WHO, {}, signal)).scopes ?? [];
            isKeyRefused.value = false;
            state.value = "open";
        } catch (error) {
            if (signal?.aborted) return;
            const isRefused = error instanceof ApiError && error.status === 401;
            // A server without Blade does not have this route. Each page then reports what is missing.
            const isMissing = error instanceof ApiError && error.status === 404;
            state.value = isRefused ? "closed" : isMissing ? "open" : { failed: error };
        }
    };
    useEffect(() => {
        const abort = new AbortController();
        void check(abort.signal);
        return () => abort.abort();
    }, [key.value]);
    if (typeof state.value === "object") return <Failed error={state.value.failed} onRetry={() => void check()} />;
    if (state.value === "asking") return <Loading />;
    if (state.value === "closed" || isKeyRefused.value) return <KeyForm onKey={() => void check()} />;
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
                <LoginButton />
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
