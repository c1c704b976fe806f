/** Links that show a conversation to people without a key. The server stores no tokens, so a link is shown only once. */
import { useSignal } from "@preact/signals";
import { api } from "../api/client";
import { useLoaded } from "../api/loading";
import { to } from "../browser/router";
import { Button } from "../components/Button";
import { useCopying } from "../components/CopyButton";
import { Select } from "../components/Field";
import { errorMessage, showError } from "../components/Toast";
import { dateTime, t } from "../i18n";

interface Link {
    readonly id: string;
    readonly created_at: string;
    readonly expires_at: string | null;
}

interface NewLink extends Link {
    readonly token: string;
}

const LIFETIMES = [
    ["3600", "chat.public-hour"],
    ["86400", "chat.public-day"],
    ["604800", "chat.public-week"],
    ["2592000", "chat.public-month"],
] as const;

export function PublicLinks({ path }: { path: string }) {
    const { state, reload } = useLoaded((signal) => api.get<Link[]>(path, undefined, signal), [path]);
    const seconds = useSignal<string>("604800");
    const created = useSignal<NewLink | null>(null);
    const { isDone, copy } = useCopying();
    const create = async (): Promise<void> => {
        try {
            created.value = await api.post<NewLink>(path, { ttl_seconds: Number(seconds.value) });
        } catch (error) {
            showError(error);
        }
        await reload();
    };
    const revoke = async (id: string): Promise<void> => {
        try {
            await api.delete(`${path}/${id}`);
            if (created.value?.id === id) created.value = null;
        } catch (error) {
            showError(error);
        }
        await reload();
    };
    const { value, error } = state.value;
    const url = `${new URL("./", document.baseURI).href}${to("share", created.value?.token ?? "")}`;
    return (
        <section class="stack" aria-label={t("chat.public")}>
            <h3 class="dialog-section">{t("chat.public")}</h3>
            {error !== null ? (
                <p class="soft small">{errorMessage(error)}</p>
            ) : (
                <>
                    <p class="soft small">{t("chat.public-why")}</p>
                    <Select
                        label={t("chat.public-valid")}
                        value={seconds.value}
                        onValue={(value) => (seconds.value = value)}
                        options={LIFETIMES.map(([value, name]) => [value, t(name)] as const)}
                    />
                    <div>
                        <Button onClick={() => void create()}>{t("chat.public-create")}</Button>
                    </div>
                </>
            )}
            {created.value !== null && (
                <div class="note stack">
                    <a class="public-link small" href={url} target="_blank" rel="noopener">
                        {url}
                    </a>
                    <div>
                        <Button icon={isDone ? "check" : "copy"} isSmall onClick={() => void copy(url)}>
                            {t(isDone ? "action.copied" : "chat.public-copy")}
                        </Button>
                    </div>
                </div>
            )}
            {value !== null && value.length > 0 && (
                <ul class="public-links" aria-label={t("chat.public-all")}>
                    {value.map((link) => (
                        <li key={link.id} class="row">
                            <span class="soft small grow">
                                {t("chat.public-created", { at: dateTime(link.created_at) })}
                                {" · "}
                                {link.expires_at === null
                                    ? t("chat.public-lasts")
                                    : t("chat.public-until", { at: dateTime(link.expires_at) })}
                            </span>
                            <Button kind="danger" isSmall onClick={() => void revoke(link.id)}>
                                {t("chat.public-revoke")}
                            </Button>
                        </li>
                    ))}
                </ul>
            )}
        </section>
    );
}
