/** Uploaded images: upload, view, copy link, delete. */
import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { api } from "../../api/client";
import { isReadOnly } from "../../api/key";
import { useLoaded } from "../../api/loading";
import { Button, IconButton } from "../../components/Button";
import { CopyButton } from "../../components/CopyButton";
import { confirmed } from "../../components/Dialog";
import { Editable } from "../../components/Editable";
import { Empty, Failed } from "../../components/Empty";
import { Loading, Spinner } from "../../components/Spinner";
import { showMessage, showError } from "../../components/Toast";
import { count, t } from "../../i18n";
import "../pages.css";
import "./attachments.css";

interface Stored {
    readonly bucket: string;
    readonly path: string;
    readonly mime_type: string;
    readonly url: string;
}

const PATH = "/api/v1/agent/attachments";
const TYPES = ["image/png", "image/jpeg", "image/webp", "image/gif"];

export default function Page() {
    const { state, reload } = useLoaded((signal) => api.get<{ items: readonly Stored[] }>(PATH, {}, signal), []);
    const uploading = useSignal(0);
    const isOver = useSignal(false);
    const chooser = useRef<HTMLInputElement>(null);
    const { value, error } = state.value;
    const upload = async (files: Iterable<File>): Promise<void> => {
        const chosen = [...files].filter((file) => file.size > 0);
        uploading.value += chosen.length;
        for (const file of chosen) {
            const form = new FormData();
            form.append("file", file);
            try {
                await api.post(PATH, form);
            } catch (fault) {
                showError(fault);
            }
            uploading.value -= 1;
        }
        await reload();
    };
    const uploadFrom = (data: DataTransfer | null): boolean => {
        const files = data?.files;
        if (files === undefined || files.length === 0 || isReadOnly()) return false;
        void upload(files);
        return true;
    };
    return (
        <div
            class={isOver.value ? "page dropping" : "page"}
            onPaste={(event) => uploadFrom(event.clipboardData) && event.preventDefault()}
            onDragOver={(event) => {
                event.preventDefault();
                isOver.value = true;
            }}
            onDragLeave={() => (isOver.value = false)}
            onDrop={(event) => {
                event.preventDefault();
                isOver.value = false;
                uploadFrom(event.dataTransfer);
            }}
        >
            <div class="page-body">
                <header class="page-head">
                    <h1>{t("nav.attachments")}</h1>
                    <div class="row">
                        {uploading.value > 0 && (
                            <span class="row soft small" role="status">
                                <Spinner />
                                {t("attachments.uploading", { count: count(uploading.value) })}
                            </span>
                        )}
                        <Editable explains>
                            <Button kind="primary" icon="plus" onClick={() => chooser.current?.click()}>
                                {t("attachments.upload")}
                            </Button>
                        </Editable>
                    </div>
                    <p class="soft">{t("attachments.about")}</p>
                </header>
                <input
                    ref={chooser}
                    class="visually-hidden"
                    type="file"
                    tabIndex={-1}
                    aria-label={t("attachments.choose")}
                    accept={TYPES.join(",")}
                    multiple
                    onChange={(event) => {
                        void upload(event.currentTarget.files ?? []);
                        event.currentTarget.value = "";
                    }}
                />
                {value === null && error === null && <Loading />}
                {error !== null && <Failed error={error} onRetry={() => void reload()} />}
                {value !== null && value.items.length === 0 && (
                    <Empty icon="attach" title={t("attachments.empty")}>
                        <p>{t("attachments.empty-why")}</p>
                    </Empty>
                )}
                {value !== null && (
                    <ul class="pictures" aria-label={t("nav.attachments")}>
                        {value.items.map((stored) => (
                            <Item key={stored.path} stored={stored} onChanged={() => void reload()} />
                        ))}
                    </ul>
                )}
            </div>
        </div>
    );
}

function Item({ stored, onChanged }: { stored: Stored; onChanged: () => void }) {
    const { path, mime_type, url } = stored;
    const [, , thread = "", , name = ""] = path.split("/");
    const part = { type: "image", source: { type: "url", value: url, mimeType: mime_type } };
    const remove = async (): Promise<void> => {
        const request = { title: t("attachments.delete"), text: t("attachments.delete-why"), yes: t("action.delete") };
        if (!(await confirmed(request))) return;
        try {
            await api.delete(`${PATH}?path=${encodeURIComponent(path)}`);
            showMessage(t("attachments.deleted"));
            onChanged();
        } catch (error) {
            showError(error);
        }
    };
    return (
        <li class="picture" data-path={path}>
            <a href={url} target="_blank" rel="noopener">
                <img src={url} alt={name} loading="lazy" />
            </a>
            <div class="picture-foot">
                <span class="grow picture-name" title={path}>
                    {name}
                    <span class="soft">
                        {mime_type.replace("image/", "")} ·{" "}
                        {t(thread === "-" ? "attachments.free" : "attachments.bound")}
                    </span>
                </span>
                <CopyButton text={url} label={t("attachments.link")} about={name} />
                <CopyButton text={JSON.stringify(part)} label={t("attachments.part")} about={name} />
                <Editable>
                    <IconButton
                        icon="trash"
                        isSmall
                        label={t("action.delete")}
                        about={name}
                        onClick={() => void remove()}
                    />
                </Editable>
            </div>
        </li>
    );
}
