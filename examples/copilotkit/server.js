// Serves the page and CopilotKit's runtime. The API key stays here: pages never see it.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { copilotKit } from "./runtime.js";

const { DRAGOMAN_URL = "http://127.0.0.1:8000", DRAGOMAN_AGENT = "assistant", DRAGOMAN_KEY, PORT = "8080" } = process.env;
if (!DRAGOMAN_KEY) {
  console.error("Set DRAGOMAN_KEY to the key that the server printed: DRAGOMAN_KEY=sk-dragoman-… npm start");
  process.exit(1);
}

const runtime = copilotKit(`${DRAGOMAN_URL}/ag-ui/${DRAGOMAN_AGENT}`, DRAGOMAN_KEY);
const pages = {
  "/": ["index.html", "text/html; charset=utf-8"],
  "/dist/page.js": ["dist/page.js", "text/javascript"],
  "/dist/page.css": ["dist/page.css", "text/css"],
};

createServer(async (request, response) => {
  const { pathname } = new URL(request.url, "http://localhost");
  if (pathname.startsWith("/api/copilotkit")) return runtime(request, response);
  if (!Object.hasOwn(pages, pathname)) return response.writeHead(404).end();
  const [file, type] = pages[pathname];
  response.writeHead(200, { "Content-Type": type }).end(await readFile(new URL(file, import.meta.url)));
}).listen(Number(PORT), "127.0.0.1", () => console.log(`open http://127.0.0.1:${PORT}`));
