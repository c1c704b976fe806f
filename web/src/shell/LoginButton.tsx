/** Offers to log in at the server's identity provider, if it has one. */
import { useSignal } from "@preact/signals";
import { beginLogin, findProvider, loginError } from "../api/login";
import { useLoaded } from "../api/loading";
import { Button } from "../components/Button";
import { t } from "../i18n";

export function LoginButton() {
    const { state } = useLoaded(() => findProvider());
    const isLeaving = useSignal(false);
    const provider = state.value.value;
    if (provider === null || !isSecureContext) return null; // browsers have cryptography in secure contexts only
    const begin = async (): Promise<void> => {
        isLeaving.value = true;
        await beginLogin(provider);
    };
    return (
        <div class="stack">
            <h1>{t("login.title")}</h1>
            <p class="soft">{t("login.why", { provider: new URL(provider.issuer).host })}</p>
            {loginError.value !== null && (
                <p class="note" role="alert">
                    {t("login.failed", { reason: loginError.value })}
                </p>
            )}
            <div>
                <Button kind="primary" disabled={isLeaving.value} onClick={() => void begin()}>
                    {t("login.begin")}
                </Button>
            </div>
        </div>
    );
}
