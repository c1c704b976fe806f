/** A JSON value or a text, with its name and a copy button. */
import { CopyButton } from "../components/CopyButton";
import { t } from "../i18n";
import type { Json } from "./wire";

const MAX_VALUE_LENGTH = 20_000;

export function Value({ label, value }: { label: string; value: Json }) {
    const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
    const isLong = text.length > MAX_VALUE_LENGTH;
    return (
        <figure class="value">
            <figcaption>
                <span>{label}</span>
                <CopyButton text={text} label={t("chat.copy-value", { what: label })} />
            </figcaption>
            <pre tabIndex={0}>{isLong ? `${text.slice(0, MAX_VALUE_LENGTH)} …` : text}</pre>
        </figure>
    );
}
