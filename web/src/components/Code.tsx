/** A block of code, with a copy button, and with colors as soon as it has stopped growing. */
import { signal, useSignal } from "@preact/signals";
import type { Tokens } from "marked";
import { useEffect, useMemo } from "preact/hooks";
import { t } from "../i18n";
import { CopyButton } from "./CopyButton";

/** Code that grows is not parsed for every new word. */
const SETTLED_MS = 200;
const MAX_HIGHLIGHTED_LENGTH = 50_000;

const highlighter = signal<typeof import("./highlight") | null>(null);
let isRequested = false;

/** Loads the highlighter once. Without it, for example without a connection, code has no colors. */
function request(): void {
    if (isRequested) return;
    isRequested = true;
    import("./highlight").then(
        (module) => (highlighter.value = module),
        () => (isRequested = false),
    );
}

export function Code({ code, isGrowing }: { code: Tokens.Code; isGrowing: boolean }) {
    const language = code.lang?.split(/\s/)[0] ?? "";
    const settled = useSignal(isGrowing ? "" : code.text);
    const isColored = language !== "" && code.text.length <= MAX_HIGHLIGHTED_LENGTH;
    useEffect(() => {
        if (!isColored) return;
        request();
        if (settled.peek() === code.text) return;
        const timer = setTimeout(() => (settled.value = code.text), SETTLED_MS);
        return () => clearTimeout(timer);
    }, [code.text, isColored]);
    const module = highlighter.value;
    const isReady = isColored && module !== null && settled.value === code.text;
    const elements = useMemo(
        () => (isReady ? module.highlighted(language.toLowerCase(), code.text) : null),
        [isReady, language, code.text],
    );
    return (
        <figure class="code">
            <figcaption>
                <span>{language}</span>
                <CopyButton text={code.text} label={t("chat.copy-code")} />
            </figcaption>
            <pre tabIndex={0}>
                <code>{elements ?? code.text}</code>
            </pre>
        </figure>
    );
}
