/** Formulas in Markdown: `$…$` and `\(…\)` in a line, `$$…$$` and `\[…\]` as blocks. Pure. */
import type { TokenizerAndRendererExtension, Tokens } from "marked";

export interface FormulaToken extends Tokens.Generic {
    type: "formula";
    raw: string;
    text: string;
    isBlock: boolean;
}

const BLOCK = /^ {0,3}(?:\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\])[ \t]*(?:\n+|$)/;
const DISPLAY = /^(?:\$\$([^\n]+?)\$\$|\\\[([^\n]+?)\\\])/;
/** As in Pandoc, `$5 and $6` is not a formula: no space inside the signs, and no digit after the second one. No code. */
const INLINE = /^(?:\$(?![\s$])((?:\\.|[^\\$`\n])*?[^\\\s$`])\$(?!\d)|\\\(([^\n]+?)\\\))/;

const tokenOf = (match: RegExpExecArray | null, isBlock: boolean): FormulaToken | undefined =>
    match === null ? undefined : { type: "formula", raw: match[0], text: (match[1] ?? match[2] ?? "").trim(), isBlock };

const placeOf = (source: string, sign: RegExp): number | undefined => {
    const place = source.search(sign);
    return place < 0 ? undefined : place;
};

export const FORMULAS: TokenizerAndRendererExtension[] = [
    {
        name: "formula",
        level: "block",
        start: (source) => placeOf(source, /^ {0,3}(?:\$\$|\\\[)/m),
        tokenizer: (source) => tokenOf(BLOCK.exec(source), true),
    },
    {
        name: "formulaInline",
        level: "inline",
        start: (source) => placeOf(source, /\$|\\[([]/),
        tokenizer: (source) => tokenOf(DISPLAY.exec(source), true) ?? tokenOf(INLINE.exec(source), false),
    },
];
