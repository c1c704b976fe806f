// The official TypeScript client at a server: `node client.mjs URL KEY`. Prints what it saw as one line of JSON.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const [url, key] = process.argv.slice(2);
const seen = { forms: [], progress: [], errors: [] };
let broken = false;

// Breaks the connection of each call once, after the first bytes of its stream.
async function breakingFetch(input, init) {
  const response = await fetch(input, init);
  const isCall = init?.method === "POST" && String(init.body).includes('"tools/call"');
  if (!isCall || broken || !response.headers.get("content-type")?.startsWith("text/event-stream")) return response;
  broken = true;
  const reader = response.body.getReader();
  const body = new ReadableStream({
    async start(controller) {
      controller.enqueue((await reader.read()).value);
      controller.close();
      await reader.cancel();
    },
  });
  return new Response(body, { status: response.status, headers: response.headers });
}

const client = new Client({ name: "test", version: "1" }, { capabilities: { elicitation: { form: {} } } });
client.onerror = (error) => seen.errors.push(String(error));
client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
  seen.forms.push(params.message);
  const isApproval = "decision" in params.requestedSchema.properties;
  return { action: "accept", content: isApproval ? { decision: "allow" } : { answer_0: "production" } };
});
const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { Authorization: `Bearer ${key}` } },
  fetch: breakingFetch,
});
await client.connect(transport);
seen.tools = (await client.listTools()).tools.map((tool) => tool.name);

const call = (args) =>
  client.callTool({ name: "rehearsal", arguments: args }, undefined, {
    onprogress: (progress) => seen.progress.push(progress.progress),
  });
const script = (...steps) => JSON.stringify({ script: steps });
const slow = { wait_ms: 100 };
const resumed = await call({ message: script({ say: "one " }, { step: true }, slow, { say: "two" }) });
seen.resumed = resumed.structuredContent.text;
const session_id = resumed.structuredContent.session_id;
seen.question = (await call({ message: "ask me", session_id })).structuredContent.text;
const stamp = script({ call: { name: "stamp", input: { text: "x" } } }, { say: "{result}" });
seen.approval = (await call({ message: stamp, session_id })).structuredContent.text;
seen.refused = (await call({ message: "hello", session_id: "default" })).isError;
const controller = new AbortController();
const long = script({ say: "one" }, { wait_ms: 600000 });
const cancelled = client.callTool({ name: "rehearsal", arguments: { message: long, session_id } }, undefined, {
  signal: controller.signal,
  onprogress: () => controller.abort("enough"),
});
seen.cancelled = await cancelled.then(
  () => "answered",
  () => "cancelled",
);
for (;;) {
  const after = await call({ message: "hello", session_id });
  if (!after.isError) {
    seen.after = after.structuredContent.text;
    break;
  }
}
seen.resources = (await client.listResources()).resources.map((each) => each.uri.replace(session_id, "SESSION"));
await client.close();
console.log(JSON.stringify(seen));
