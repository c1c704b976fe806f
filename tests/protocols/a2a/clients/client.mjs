// The official JavaScript client at an agent: `node client.mjs URL KEY`. Prints what it saw as one line of JSON.
import {
  ClientFactory,
  ClientFactoryOptions,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from "@a2a-js/sdk/client";

const [url, key] = process.argv.slice(2);
const authorized = (input, init = {}) =>
  fetch(input, { ...init, headers: { ...Object.fromEntries(new Headers(init.headers)), authorization: `Bearer ${key}` } });
const script = (...steps) => JSON.stringify({ script: steps });
const STATES = ["unspecified", "submitted", "working", "completed", "failed", "canceled", "input-required", "rejected", "auth-required"];
const stamp = script({ call: { name: "stamp", input: { text: "x" } } }, { say: "so {result}" });
const slow = script({ say: "one " }, { wait_ms: 600000 });

function message(value, members = {}) {
  const $case = typeof value === "string" ? "text" : "data";
  const parts = [{ content: { $case, value }, mediaType: "", filename: "", metadata: undefined }];
  const empty = { contextId: "", taskId: "", extensions: [], referenceTaskIds: [], metadata: undefined };
  return { message: { messageId: crypto.randomUUID(), role: 1, parts, ...empty, ...members }, tenant: "", metadata: undefined };
}

// Reads a stream: the task, the states and the text.
async function read(stream) {
  const seen = { states: [], text: "" };
  for await (const { payload } of stream) {
    if (payload.$case === "task") seen.task = payload.value;
    if (payload.$case === "task" || payload.$case === "statusUpdate") seen.states.push(STATES[payload.value.status.state]);
    if (payload.$case === "statusUpdate") seen.last = payload.value.status.message;
    if (payload.$case === "artifactUpdate") {
      for (const part of payload.value.artifact.parts) if (part.content?.$case === "text") seen.text += part.content.value;
    }
  }
  return seen;
}

async function visit(client) {
  const seen = {};
  const hello = await read(client.sendMessageStream(message("hello")));
  seen.hello = [hello.states, hello.text];
  const contextId = hello.task.contextId;
  const asked = await read(client.sendMessageStream(message("ask me", { contextId })));
  const answered = await client.sendMessage(message("production", { taskId: asked.task.id, contextId }));
  seen.question = [asked.states, STATES[answered.status.state], answered.artifacts[0].parts[0].content.value];
  const waiting = await read(client.sendMessageStream(message(stamp, { contextId })));
  const { callId } = waiting.last.parts.find((part) => part.content.$case === "data").content.value.pending[0];
  const allowed = message({ answers: [{ callId, granted: true }] }, { taskId: waiting.task.id, contextId });
  seen.approval = [waiting.states, (await read(client.sendMessageStream(allowed))).text];
  const got = await client.getTask({ id: waiting.task.id, historyLength: 1, tenant: "" });
  seen.get = [STATES[got.status.state], got.history.length];
  const running = client.sendMessageStream(message(slow, { contextId }));
  const id = (await running.next()).value.payload.value.id;
  const following = client.resubscribeTask({ id, tenant: "" });
  await following.next();
  seen.cancelled = STATES[(await client.cancelTask({ id, tenant: "", metadata: undefined })).status.state];
  seen.followed = (await read(following)).states.at(-1);
  seen.rest = (await read(running)).states.at(-1);
  seen.unknown = await client.getTask({ id: contextId, tenant: "" }).catch((error) => error.name);
  return seen;
}

const fetchImpl = authorized;
const cardResolver = new DefaultAgentCardResolver({ fetchImpl });
const card = await cardResolver.resolve(url);
const found = {};
for (const [protocolBinding, protocolVersion] of [["JSONRPC", "1.0"], ["HTTP+JSON", "1.0"], ["JSONRPC", "0.3"]]) {
  const legacyCompat = { enabled: true };
  const transports = [new JsonRpcTransportFactory({ fetchImpl, legacyCompat }), new RestTransportFactory({ fetchImpl })];
  const factory = new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, { transports, cardResolver }));
  const supportedInterfaces = card.supportedInterfaces.filter(
    (each) => each.protocolBinding === protocolBinding && each.protocolVersion === protocolVersion,
  );
  found[`${protocolBinding} ${protocolVersion}`] = await visit(await factory.createFromAgentCard({ ...card, supportedInterfaces }));
}
console.log(JSON.stringify(found));
