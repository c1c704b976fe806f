// A chat page on the official AG-UI client: streaming, a tool that runs in the page, approvals and questions, a stop
// button, and a thread that is still there after a reload, its running answer included.
import { HttpAgent } from "@ag-ui/client";

const $ = (id) => document.getElementById(id);

// --- the page's own tool ---------------------------------------------------------------------------------------------

const TOOLS = [
  {
    name: "colour_page",
    description: "Colour the background of the page that the user looks at.",
    parameters: { type: "object", properties: { colour: { type: "string" } }, required: ["colour"] },
  },
];
const DOES = {
  colour_page({ colour }) {
    document.body.style.background = colour;
    return `The page is ${colour} now.`;
  },
};

// --- the agent -------------------------------------------------------------------------------------------------------

let agent = null;
let endpoint = "";

// The thread stands in the page's address, so that a reload and a bookmark come back to it.
function threadId() {
  if (!location.hash) location.hash = crypto.randomUUID();
  return location.hash.slice(1);
}

async function open() {
  endpoint = `${$("server").value}/ag-ui/${$("agent").value}`;
  const headers = { "X-Run-On-Disconnect": "continue" }; // so that a reload finds the answer that was running
  if ($("key").value) headers.Authorization = `Bearer ${$("key").value}`;
  const isKnown = Boolean(location.hash);
  agent = new HttpAgent({ url: endpoint, headers, threadId: threadId() });
  agent.subscribe({
    onMessagesChanged: draw,
    onRunErrorEvent: ({ event }) => event.code !== "abort" && complain(event.message),
  });
  draw();
  if (!isKnown) return;
  agent.url = `${endpoint}/connect`; // tells the thread, and joins the run that is active
  await run({});
  agent.url = endpoint;
}

async function run(parameters) {
  complaint = "";
  $("stop").disabled = false;
  $("send").disabled = true;
  try {
    await agent.runAgent({ tools: TOOLS, ...parameters });
  } catch (error) {
    complain(error.status === 404 ? "There is no such thread yet: say something." : error.message);
  }
  $("stop").disabled = true;
  $("send").disabled = false;
  draw();
  await runOwnTools();
}

// The calls that wait for this page: those of its tools without a result. Approvals come first.
async function runOwnTools() {
  if (agent.pendingInterrupts.length) return;
  const answered = new Set(agent.messages.filter((each) => each.role === "tool").map((each) => each.toolCallId));
  const calls = agent.messages.flatMap((each) => each.toolCalls ?? []);
  const waiting = calls.filter((call) => call.function.name in DOES && !answered.has(call.id));
  if (!waiting.length) return;
  for (const call of waiting) {
    const content = DOES[call.function.name](JSON.parse(call.function.arguments));
    agent.messages.push({ id: crypto.randomUUID(), role: "tool", toolCallId: call.id, content });
  }
  await run({});
}

// --- what is shown ---------------------------------------------------------------------------------------------------

function line(kind, text) {
  const shown = document.createElement("div");
  shown.className = `message ${kind}`;
  shown.textContent = text;
  return shown;
}

// What went wrong in the last run; it stands below the messages until the next one.
let complaint = "";

function complain(text) {
  complaint = text;
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
  $("log").replaceChildren(...agent.messages.flatMap(linesOf), ...(complaint ? [line("error", complaint)] : []));
  $("questions").replaceChildren(...agent.pendingInterrupts.map(asked));
}

// An interrupt: an approval has two buttons, a question takes words. All are answered together.
const answers = new Map();

function asked(interrupt) {
  const shown = line("interrupt", `${interrupt.message} `);
  const answer = (entry) => {
    answers.set(interrupt.id, { interruptId: interrupt.id, ...entry });
    shown.remove();
    const open = agent.pendingInterrupts.map((each) => answers.get(each.id));
    if (open.every(Boolean)) {
      answers.clear();
      void run({ resume: open });
    }
  };
  const button = (text, entry) => {
    const made = document.createElement("button");
    made.textContent = text;
    made.onclick = () => answer(entry());
    return made;
  };
  if (interrupt.reason === "tool_call") {
    shown.append(button("Allow", () => ({ status: "resolved", payload: { approved: true } })));
  } else {
    const words = document.createElement("input");
    shown.append(words, button("Answer", () => ({ status: "resolved", payload: words.value })));
  }
  shown.append(button("Refuse", () => ({ status: "cancelled" })));
  return shown;
}

// --- what the user does ----------------------------------------------------------------------------------------------

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
$("stop").onclick = () => // a run that goes on without its reader is stopped by asking for it, not by `abortRun`
  fetch(`${endpoint}/stop/${encodeURIComponent(agent.threadId)}`, { method: "POST", headers: agent.headers });
