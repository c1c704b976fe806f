// A chat page on the official AG-UI client: streaming, a tool that runs in the page, approvals and questions, a stop
// button, and a thread that survives a reload, even while an answer is being generated.
import { HttpAgent } from "@ag-ui/client";

const $ = (id) => document.getElementById(id);

// --- the page's own tool ---------------------------------------------------------------------------------------------

const TOOLS = [
  {
    name: "color_page",
    description: "Set the background color of the page that the user sees.",
    parameters: { type: "object", properties: { color: { type: "string" } }, required: ["color"] },
  },
];
const IMPLEMENTATIONS = {
  color_page({ color }) {
    document.body.style.background = color;
    return `The page is ${color} now.`;
  },
};

// --- the agent -------------------------------------------------------------------------------------------------------

let agent = null;
let endpoint = "";

// The thread id is in the page's address, so that reloads and bookmarks return to it.
function threadId() {
  if (!location.hash) location.hash = crypto.randomUUID();
  return location.hash.slice(1);
}

async function open() {
  endpoint = `${$("server").value}/ag-ui/${$("agent").value}`;
  const headers = { "X-Run-On-Disconnect": "continue" }; // so that a run survives a reload
  if ($("key").value) headers.Authorization = `Bearer ${$("key").value}`;
  const isKnown = Boolean(location.hash);
  agent = new HttpAgent({ url: endpoint, headers, threadId: threadId() });
  agent.subscribe({
    onMessagesChanged: draw,
    onRunErrorEvent: ({ event }) => event.code !== "abort" && showError(event.message),
  });
  draw();
  if (!isKnown) return;
  agent.url = `${endpoint}/connect`; // loads the thread, and joins its active run
  await run({});
  agent.url = endpoint;
}

async function run(parameters) {
  errorText = "";
  $("stop").disabled = false;
  $("send").disabled = true;
  try {
    await agent.runAgent({ tools: TOOLS, ...parameters });
  } catch (error) {
    showError(error.status === 404 ? "This thread does not exist yet. Send a message to create it." : error.message);
  }
  $("stop").disabled = true;
  $("send").disabled = false;
  draw();
  await runOwnTools();
}

// Runs the pending calls of this page's tools. Approvals come first.
async function runOwnTools() {
  if (agent.pendingInterrupts.length) return;
  const answered = new Set(agent.messages.filter((each) => each.role === "tool").map((each) => each.toolCallId));
  const calls = agent.messages.flatMap((each) => each.toolCalls ?? []);
  const pending = calls.filter((call) => call.function.name in IMPLEMENTATIONS && !answered.has(call.id));
  if (!pending.length) return;
  for (const call of pending) {
    const content = IMPLEMENTATIONS[call.function.name](JSON.parse(call.function.arguments));
    agent.messages.push({ id: crypto.randomUUID(), role: "tool", toolCallId: call.id, content });
  }
  await run({});
}

// --- rendering -------------------------------------------------------------------------------------------------------

function line(kind, text) {
  const element = document.createElement("div");
  element.className = `message ${kind}`;
  element.textContent = text;
  return element;
}

// The error of the last run, displayed below the messages until the next run.
let errorText = "";

function showError(text) {
  errorText = text;
  draw();
}

function linesOf(message) {
  if (message.role === "activity") return [line("tool", JSON.stringify(message.content))];
  const text = typeof message.content === "string" ? message.content : partsOf(message.content ?? []);
  const calls = (message.toolCalls ?? []).map((call) => line("call", `${call.function.name}(${call.function.arguments})`));
  return [...(text ? [line(message.role, text)] : []), ...calls];
}

function partsOf(parts) {
  return parts.map((part) => (part.type === "text" ? part.text : `[${part.type}]`)).join("");
}

function draw() {
  $("log").replaceChildren(...agent.messages.flatMap(linesOf), ...(errorText ? [line("error", errorText)] : []));
  $("questions").replaceChildren(...agent.pendingInterrupts.map(interruptLine));
}

// An approval has buttons, a question has an input field. The answers to all interrupts are sent together.
const answers = new Map();

function interruptLine(interrupt) {
  const element = line("interrupt", `${interrupt.message} `);
  const answer = (entry) => {
    answers.set(interrupt.id, { interruptId: interrupt.id, ...entry });
    element.remove();
    const entries = agent.pendingInterrupts.map((each) => answers.get(each.id));
    if (entries.every(Boolean)) {
      answers.clear();
      void run({ resume: entries });
    }
  };
  const button = (text, entry) => {
    const control = document.createElement("button");
    control.textContent = text;
    control.onclick = () => answer(entry());
    return control;
  };
  if (interrupt.reason === "tool_call") {
    element.append(button("Allow", () => ({ status: "resolved", payload: { approved: true } })));
  } else {
    const input = document.createElement("input");
    element.append(input, button("Answer", () => ({ status: "resolved", payload: input.value })));
  }
  element.append(button("Deny", () => ({ status: "cancelled" })));
  return element;
}

// --- user actions ----------------------------------------------------------------------------------------------------

$("settings").onsubmit = (event) => {
  event.preventDefault();
  void open();
};
$("say").onsubmit = (event) => {
  event.preventDefault();
  const content = $("text").value.trim();
  if (!agent || !content) return;
  $("text").value = "";
  agent.messages.push({ id: crypto.randomUUID(), role: "user", content });
  draw();
  void run({});
};
$("stop").onclick = () => // `abortRun` would only disconnect, and the run continues without a reader
  fetch(`${endpoint}/stop/${encodeURIComponent(agent.threadId)}`, { method: "POST", headers: agent.headers });
