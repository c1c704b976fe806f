/** Shares a conversation with other users of the server, and saves it as a file. */
import { useSignal } from "@preact/signals";
import { api, ask } from "../api/client";
import { download } from "../browser/files";
import { to } from "../browser/router";
import { Button } from "../components/Button";
import { useCopying } from "../components/CopyButton";
import { Dialog } from "../components/Dialog";
import { Checkbox, Select } from "../components/Field";
import { showError } from "../components/Toast";
import { t } from "../i18n";
import { useConversation } from "./context";
import { fileNameOf, markdownOf } from "./exporting";
import type { Turn } from "./wire";

/** How long a public link lasts, in seconds. It cannot be listed, so it always ends. */
const LIFETIMES = [
    ["3600", "chat.public-hour"],
    ["86400", "chat.public-day"],
    ["604800", "chat.public-week"],
    ["2592000", "chat.public-month"],
] as const;

export function Share({ onClose }: { onClose: () => void }) {
    const conversation = useConversation();
    const { isDone, copy } = useCopying();
    const isSaving = useSignal(false);
    const detail = conversation.detail.value;
    const title = detail?.intent || t("chat.untitled");
    const path = `/api/sessions/${conversation.id}`;
    const save = async (
        content: () => Promise<[extension: string, type: string, content: BlobPart]>,
    ): Promise<void> => {
        isSaving.value = true;
        try {
            const [extension, type, text] = await content();
            download(`${fileNameOf(title)}.${extension}`, type, text);
        } catch (error) {
            showError(error);
        } finally {
            isSaving.value = false;
        }
    };
    const turns = (): Promise<Turn[]> => api.get<Turn[]>(`${path}/messages`);
    const formats = [
        [
            "Markdown",
            async () => {
                const agent = detail?.solution?.name ?? t("chat.agent");
                return ["md", "text/markdown", markdownOf(title, agent, await turns())];
            },
        ],
        ["JSON", async () => ["json", "application/json", JSON.stringify(await turns(), null, 2)]],
        [t("chat.archive"), async () => ["zip", "application/zip", await (await ask("GET", `${path}/export`)).blob()]],
    ] as const satisfies readonly [string, () => Promise<[string, string, BlobPart]>][];
    const share = (shared: boolean): void => void conversation.change("/sharing", { shared }).catch(showError);
    return (
        <Dialog title={t("chat.share")} onClose={onClose}>
            <Checkbox label={t("chat.share-users")} value={detail?.shared ?? false} onValue={share} />
            <div class="stack">
                <div>
                    <Button icon={isDone ? "check" : "copy"} onClick={() => void copy(location.href)}>
                        {t(isDone ? "action.copied" : "chat.copy-link")}
                    </Button>
                </div>
                <p class="soft small">{t("chat.share-why")}</p>
            </div>
            <PublicLink path={path} />
            <h3 class="dialog-section">{t("chat.export")}</h3>
            <div class="row wrap">
                {formats.map(([name, content]) => (
                    <Button key={name} disabled={isSaving.value} onClick={() => void save(content)}>
                        {name}
                    </Button>
                ))}
            </div>
            <p class="soft small">{t("chat.export-why")}</p>
        </Dialog>
    );
}

/** A link for people without a key. The server shows its token only once. */
function PublicLink({ path }: { path: string }) {
    const seconds = useSignal<string>("604800");
    const token = useSignal<string | null>(null);
    const { isDone, copy } = useCopying();
    const create = async (): Promise<void> => {
        try {
            const share = await api.post<{ token: string }>(`${path}/share`, { ttl_seconds: Number(seconds.value) });
            token.value = share.token;
        } catch (error) {
            showError(error);
        }
    };
    const revoke = async (): Promise<void> => {
        await api.delete(`${path}/share/${token.value}`).then(() => (token.value = null), showError);
    };
    const link = `${new URL("./", document.baseURI).href}${to("share", token.value ?? "")}`;
    return (
        <>
            <h3 class="dialog-section">{t("chat.public")}</h3>
            <p class="soft small">{t("chat.public-why")}</p>
            {token.value === null ? (
                <>
                    <Select
                        label={t("chat.public-valid")}
                        value={seconds.value}
                        onValue={(value) => (seconds.value = value)}
                        options={LIFETIMES.map(([value, name]) => [value, t(name)] as const)}
                    />
                    <div class="dialog-section">
                        <Button onClick={() => void create()}>{t("chat.public-create")}</Button>
                    </div>
                </>
            ) : (
                <>
                    <p class="small public-link">
                        <a href={link} target="_blank" rel="noopener">
                            {link}
                        </a>
                    </p>
                    <div class="row wrap">
                        <Button icon={isDone ? "check" : "copy"} onClick={() => void copy(link)}>
                            {t(isDone ? "action.copied" : "chat.public-copy")}
                        </Button>
                        <Button kind="danger" onClick={() => void revoke()}>
                            {t("chat.public-revoke")}
                        </Button>
                    </div>
                </>
            )}
        </>
    );
}
