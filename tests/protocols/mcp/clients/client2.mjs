// Version 2 of the official TypeScript client at a server: `node client2.mjs URL KEY MODE`. Prints what it saw as JSON.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, key, mode] = process.argv.slice(2);
const seen = { forms: [], errors: [] };
const client = new Client(
  { name: "test", version: "1" },
  { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode } },
);
client.onerror = (error) => seen.errors.push(String(error));
client.setRequestHandler("elicitation/create", async ({ params }) => {
  seen.forms.push(params.message);
  const isApproval = "decision" in params.requestedSchema.properties;
  return { action: "accept", content: isApproval ? { decision: "allow" } : { answer_0: "production" } };
});
const requestInit = { headers: { Authorization: `Bearer ${key}` } };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
seen.version = client.getNegotiatedProtocolVersion();
seen.tools = (await client.listTools()).tools.map((tool) => tool.name);

let progress = 0;
const call = (args) =>
  client.callTool({ name: "rehearsal", arguments: args }, { onprogress: () => (progress += 1) });
const script = (...steps) => JSON.stringify({ script: steps });
const first = await call({ message: "add 20 and 22" });
seen.first = first.structuredContent.text;
const session_id = first.structuredContent.session_id;
seen.question = (await call({ message: "ask me", session_id })).structuredContent.text;
const stamp = script({ call: { name: "stamp", input: { text: "x" } } }, { say: "{result}" });
seen.approval = (await call({ message: stamp, session_id })).structuredContent.text;
seen.refused = (await call({ message: "hello", session_id: "default" })).isError;
const controller = new AbortController();
const long = script({ say: "one" }, { wait_ms: 600000 });
const cancelled = client.callTool(
  { name: "rehearsal", arguments: { message: long, session_id } },
  { signal: controller.signal, onprogress: () => controller.abort("enough") },
);
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
seen.progress = progress > 0;
const uri = `dragoman://sessions/${session_id}`;
seen.listed = (await client.listResources()).resources.some((each) => each.uri === uri);
seen.read = (await client.readResource({ uri })).contents[0].text.split("\n")[2];
await client.close();
console.log(JSON.stringify(seen));
