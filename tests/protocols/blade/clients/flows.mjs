// The documented flows over the official Socket.IO client for JavaScript: connect, subscribe, send, fold, answer, stop,
// and come back after a cut connection. What it saw is JSON on the last line.
//
//     node flows.mjs URL KEY SESSION
import { io } from "socket.io-client";

const [url, token, session_id] = process.argv.slice(2);
const turns = new Map();
const last = new Map();
const numbers = [];
const ends = [];
let waiting = null;

function apply(turn, patch) {
  const { data } = patch;
  const call = turn.tool_calls.find((each) => each.id === (data.tool_call_id ?? data.id));
  const block = (type, content, of) => ({
    type,
    content,
    tool_call_id: of?.id ?? null,
    tool_name: of?.tool_name ?? null,
    display_name: of?.display_name ?? null,
  });
  switch (patch.patch_type) {
    case "add_content": {
      if (data.block_index === turn.blocks.length) turn.blocks.push(block(data.type, "", null));
      const changed = turn.blocks[data.block_index];
      changed.content = data.text_delta === undefined ? data.content : changed.content + data.text_delta;
      break;
    }
    case "add_tool_call":
      turn.tool_calls.push({ ...data, result: null });
      turn.blocks.push(block("tool_use", JSON.parse(data.arguments), data));
      break;
    case "tool_result":
      Object.assign(call, { result: data.result, status: data.status });
      turn.blocks.push(block("tool_result", data.result, call));
      break;
    case "set_status":
      turn.status = data.status;
      break;
    case "set_tool_status":
      call.status = data.status;
      break;
  }
}

function hear(name, payload) {
  if (payload.stream_sequence !== undefined) numbers.push(payload.stream_sequence);
  if (name === "turn:start") {
    turns.set(payload.turn_id, structuredClone(payload));
    last.set(payload.turn_id, payload.patch_sequence);
  } else if (name === "turn:patch") {
    if (payload.sequence !== last.get(payload.turn_id) + 1) throw new Error("a patch is missing");
    last.set(payload.turn_id, payload.sequence);
    apply(turns.get(payload.turn_id), payload);
  } else if (name === "turn:end") {
    const folded = turns.get(payload.turn_id);
    if (JSON.stringify(folded.blocks) !== JSON.stringify(payload.blocks)) throw new Error("G1 does not hold");
    turns.set(payload.turn_id, payload);
  } else if (name === "chat:end") {
    ends.push(payload);
  }
  waiting?.();
}

async function until(holds) {
  while (!holds()) await new Promise((resolve) => (waiting = resolve));
}

const NAMES = ["session:updated", "memory:inject:done", "chat:start", "turn:start", "turn:patch", "turn:end", "chat:end"];

function connect() {
  const socket = io(url, { auth: { token }, reconnection: false, forceNew: true });
  for (const name of NAMES) socket.on(name, (payload) => hear(name, payload));
  return new Promise((resolve, reject) => {
    socket.on("connect", () => resolve(socket));
    socket.on("connect_error", reject);
  });
}

const script = (...steps) => JSON.stringify({ script: steps });
const refused = await new Promise((resolve) => {
  const socket = io(url, { auth: { token: "wrong" }, reconnection: false, forceNew: true });
  socket.on("connect_error", (error) => {
    socket.close();
    resolve(error.message);
  });
});

let socket = await connect();
await socket.emitWithAck("session:subscribe", { session_id });
const { status: acknowledged } = await socket.emitWithAck("chat:send", { session_id, message: "ask me" });
await until(() => ends.length === 1);
const asked = [...turns.values()].flatMap((turn) => turn.tool_calls).find((call) => call.status === "awaiting_answer");
const askuser_answer = { tool_call_id: asked.id, selections: { 0: [1] }, custom: {} };
await socket.emitWithAck("chat:send", { session_id, message: "", askuser_answer });
await until(() => ends.length === 2);
const { name: transport } = socket.io.engine.transport;

const counting = script({ emit: { count: 50, text: "{i3} ", every_ms: 4 } }, { wait_ms: 600000 });
const before = numbers.length;
socket.emit("chat:send", { session_id, message: counting });
await until(() => numbers.length > before + 10);
socket.io.engine.close();
socket.removeAllListeners();
const after_sequence = numbers.at(-1);
socket = await connect();
await socket.emitWithAck("session:subscribe", { session_id, after_sequence, resume: true });
await until(() => [...turns.values()].some((turn) => turn.blocks.at(-1)?.content?.endsWith?.("049 ")));
const stopped = await socket.emitWithAck("chat:stop", { session_id });
await until(() => ends.length === 3);
socket.close();

const seen = [...turns.values()].map((turn) => [turn.turn_id, turn.status, turn.blocks]);
console.log(JSON.stringify({ refused, acknowledged, transport, stopped, turns: seen, numbers }));
process.exit(0);
