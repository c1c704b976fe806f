/** A formula; its source until KaTeX is loaded, or if it cannot be read. */
import { signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import type { FormulaToken } from "./mathSyntax";

const reader = signal<typeof import("./formula") | null>(null);
let isRequested = false;

function request(): void {
    if (isRequested) return;
    isRequested = true;
    import("./formula").then(
        (module) => (reader.value = module),
        () => (isRequested = false),
    );
}

export function Formula({ formula: { raw, text, isBlock } }: { formula: FormulaToken }) {
    useEffect(request, []);
    const module = reader.value;
    const elements = useMemo(() => module?.formulaOf(text, isBlock) ?? null, [module, text, isBlock]);
    if (elements === null) return <code class="formula-source">{raw.trim()}</code>;
    return isBlock ? (
        <span class="formula" tabIndex={0}>
            {elements}
        </span>
    ) : (
        <>{elements}</>
    );
}
