/**
 * Formulas as MathML. KaTeX writes markup; it is parsed, and only known elements and attributes of it become elements,
 * so that nothing needs sanitizing. Loaded with the first formula.
 */
import katex from "katex";
import { type ComponentChild, h } from "preact";

const ELEMENTS = new Set(
    (
        "math semantics mrow mi mn mo ms mtext mspace mfrac msqrt mroot mstyle merror mpadded mphantom menclose " +
        "msub msup msubsup munder mover munderover mmultiscripts mprescripts none mtable mtr mtd"
    ).split(" "),
);
const ATTRIBUTES = new Set(
    (
        "accent accentunder columnalign columnlines columnspacing depth display displaystyle encoding fence form height " +
        "largeop linethickness lspace mathcolor mathvariant maxsize minsize movablelimits notation rowlines rowspacing " +
        "rspace scriptlevel separator stretchy symmetric voffset width"
    ).split(" "),
);

/** The formula as elements; null if it cannot be read. */
export function formulaOf(source: string, isBlock: boolean): ComponentChild {
    try {
        const markup = katex.renderToString(source, {
            output: "mathml",
            displayMode: isBlock,
            throwOnError: true,
            strict: "ignore",
            trust: false,
            maxExpand: 300,
            maxSize: 20,
        });
        const math = new DOMParser().parseFromString(markup, "text/html").querySelector("math");
        return math === null ? null : drawn(math);
    } catch {
        return null;
    }
}

function drawn(node: Node): ComponentChild {
    if (node.nodeType === Node.TEXT_NODE) return node.textContent;
    if (!(node instanceof Element) || !ELEMENTS.has(node.localName)) return null; // such as the annotation
    const attributes = [...node.attributes].filter(({ name }) => ATTRIBUTES.has(name));
    return h(
        node.localName,
        Object.fromEntries(attributes.map(({ name, value }) => [name, value])),
        [...node.childNodes].map(drawn),
    );
}
