/** Code with colors, as elements. Loaded with the first code of a known language. */
import type { RootContent } from "hast";
import { common, createLowlight } from "lowlight";
import { type ComponentChild, h } from "preact";

const lowlight = createLowlight(common);

/** The code as elements; null if the language is not known. */
export function highlighted(language: string, code: string): ComponentChild {
    if (!lowlight.registered(language)) return null;
    return lowlight.highlight(language, code).children.map(drawn);
}

function drawn(node: RootContent): ComponentChild {
    if (node.type === "text") return node.value;
    if (node.type !== "element") return null;
    const names = node.properties["className"];
    return h("span", { class: Array.isArray(names) ? names.join(" ") : "" }, node.children.map(drawn));
}
