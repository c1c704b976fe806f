/** A picture that opens in full size. */
import { useSignal } from "@preact/signals";
import { t } from "../i18n";
import { Dialog } from "./Dialog";

interface Props {
    url: string;
    name: string;
}

export function Picture({ url, name }: Props) {
    const isOpen = useSignal(false);
    return (
        <>
            <button
                type="button"
                class="picture"
                aria-label={t("chat.picture-open")}
                title={t("chat.picture-open")}
                onClick={() => (isOpen.value = true)}
            >
                <img class="message-image" src={url} alt={name} />
            </button>
            {isOpen.value && (
                <Dialog title={name} isWide onClose={() => (isOpen.value = false)}>
                    <img class="lightbox" src={url} alt={name} />
                    <div class="dialog-foot">
                        <a class="button" href={url} download={name}>
                            {t("chat.picture-save")}
                        </a>
                    </div>
                </Dialog>
            )}
        </>
    );
}
