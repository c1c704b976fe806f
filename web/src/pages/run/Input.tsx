/** The messages that a model call got, fetched when they are asked for. */
import { useSignal } from "@preact/signals";
import { api } from "../../api/client";
import { useLoaded } from "../../api/loading";
import { Button } from "../../components/Button";
import { Failed } from "../../components/Empty";
import { Icon } from "../../components/Icon";
import { Loading } from "../../components/Spinner";
import { t } from "../../i18n";
import { Said } from "./Said";
import type { ModelInput } from "./timeline";

/** Older messages are rendered on request. */
const SHOWN = 30;

export function Input({ path }: { path: string }) {
    const isOpen = useSignal(false);
    return (
        <details class="run-input" onToggle={(event) => (isOpen.value = event.currentTarget.open)}>
            <summary>
                <Icon name="chevron" />
                {t("run.input")}
            </summary>
            {isOpen.value && <Messages path={path} />}
        </details>
    );
}

function Messages({ path }: { path: string }) {
    const isWhole = useSignal(false);
    const { state, reload } = useLoaded((signal) => api.get<ModelInput>(path, undefined, signal), [path]);
    const { value, error } = state.value;
    if (value === null) return error === null ? <Loading /> : <Failed error={error} onRetry={() => void reload()} />;
    const from = isWhole.value ? 0 : Math.max(0, value.messages.length - SHOWN);
    return (
        <>
            <p class="soft small">{t("run.input-why")}</p>
            {value.messages.length === 0 && <p class="soft small">{t("run.input-none")}</p>}
            <ol class="run-messages">
                {value.summary !== null && (
                    <li>
                        <h3>{t("run.summary")}</h3>
                        <Said block={{ type: "text", content: value.summary }} />
                    </li>
                )}
                {from > 0 && (
                    <li>
                        <Button isSmall onClick={() => (isWhole.value = true)}>
                            {t("run.input-more", { count: from })}
                        </Button>
                    </li>
                )}
                {value.messages.slice(from).map((message, index) => (
                    <li key={from + index}>
                        <h3>{t(`run.role.${message.role}`)}</h3>
                        {message.blocks.map((block, at) => (
                            <Said key={at} block={block} />
                        ))}
                    </li>
                ))}
            </ol>
        </>
    );
}
