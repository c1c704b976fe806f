/** Shares a conversation with other users of the server, and saves it as a file. */
import { useSignal } from "@preact/signals";
import { api, ask } from "../api/client";
import { download } from "../browser/files";
import { Button } from "../components/Button";
import { useCopying } from "../components/CopyButton";
import { Dialog } from "../components/Dialog";
import { Checkbox } from "../components/Field";
import { showError } from "../components/Toast";
import { t } from "../i18n";
import { useConversation } from "./context";
import { fileNameOf, markdownOf } from "./exporting";
import { PublicLinks } from "./PublicLinks";
import type { Turn } from "./wire";

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
            <PublicLinks path={`${path}/share`} />
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
