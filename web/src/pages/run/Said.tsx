/** What a message of the log says. */
import { Value } from "../../chat/Value";
import type { Block } from "../../chat/wire";
import { Markdown } from "../../components/Markdown";
import { t } from "../../i18n";

/** A block of a message. */
export function Said({ block }: { block: Block }) {
    const text = typeof block.content === "string" ? block.content : null;
    switch (block.type) {
        case "thinking":
            return (
                <blockquote class="run-thought">
                    <Markdown text={text ?? ""} />
                </blockquote>
            );
        case "tool_use":
            return <Value label={t("run.calls-tool", { tool: block.tool_name ?? "" })} value={block.content} />;
        case "tool_result":
            return <Value label={t("run.result-of", { tool: block.tool_name ?? "" })} value={block.content} />;
        default:
            if (block.attachment?.data !== undefined)
                return <Value label={t("chat.data")} value={block.attachment.data} />;
            return <Markdown text={text ?? ""} />;
    }
}
