// How Node finds and reads what the driver imports: the examples as they stand there, and packages that are not installed.
import { readFile } from "node:fs/promises";
import { fileURLToPath, pathToFileURL } from "node:url";
import { transform } from "../clients/node_modules/esbuild/lib/main.js";

const here = new URL("driver.mjs", import.meta.url).href;
const unused = /^(ai|@ai-sdk\/(?!provider).*|@ag-ui\/langgraph|@segment\/analytics-node|openai|pino-pretty|type-graphql)$/;

export function resolve(specifier, context, next) {
  if (unused.test(specifier)) return { url: new URL("unused.cjs", here).href, format: "commonjs", shortCircuit: true };
  if (specifier === "@assistant-ui/react") return next("./assistant_ui.mjs", { ...context, parentURL: here });
  const isExample = context.parentURL?.includes("/examples/") && !specifier.startsWith(".");
  return next(specifier, isExample ? { ...context, parentURL: here } : context);
}

export async function load(url, context, next) {
  if (!url.endsWith(".jsx")) return next(url, context);
  const source = await readFile(fileURLToPath(url), "utf8");
  const { code } = await transform(source, { loader: "jsx", jsx: "automatic" });
  return { format: "module", source: code, shortCircuit: true };
}
