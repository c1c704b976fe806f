/** A shared conversation, for everybody who has the link. It needs no key, and shows what the Markdown export contains. */
import { api } from "../../api/client";
import { ApiError } from "../../api/errors";
import { useLoaded } from "../../api/loading";
import { markdownOf } from "../../chat/exporting";
import { textOf, type Turn } from "../../chat/wire";
import { Empty, Failed } from "../../components/Empty";
import { Markdown } from "../../components/Markdown";
import { Loading } from "../../components/Spinner";
import { t } from "../../i18n";
import "../../chat/turn.css";
import "../pages.css";

const MAX_TITLE_LENGTH = 80;

export default function Page({ id }: { id: string }) {
    const { state, reload } = useLoaded(
        (signal) => api.get<Turn[]>(`/api/share/${encodeURIComponent(id)}`, undefined, signal),
        [id],
    );
    const { value, error } = state.value;
    if (error instanceof ApiError && error.status === 404) return <Empty icon="chat" title={t("chat.public-gone")} />;
    if (error !== null) return <Failed error={error} onRetry={() => void reload()} />;
    if (value === null) return <Loading />;
    const title = titleOf(value);
    return (
        <div class="page">
            <article class="page-body">
                <p class="soft small">{t("nav.share")}</p>
                <h1>{title}</h1>
                <Markdown text={markdownOf(title, t("chat.agent"), value).replace(/^# .*\n/, "")} />
            </article>
        </div>
    );
}

/** The first line that the user wrote. */
function titleOf(turns: readonly Turn[]): string {
    const [line = ""] = turns
        .map((turn) => (turn.role === "user" ? textOf(turn) : ""))
        .join("\n")
        .trim()
        .split("\n");
    return line.length > MAX_TITLE_LENGTH ? `${line.slice(0, MAX_TITLE_LENGTH - 1)}…` : line || t("chat.untitled");
}
