// Official AG-UI clients under remote control: a command is a line of JSON on stdin, an answer or an event one on stdout.
//
//   {"id", "do": "open", "agent", "version", "url", "threadId", "headers", "messages", "state"}
//   {"id", "do": "say", "agent", "messages"}                   adds messages, as an application does
//   {"id", "do": "show", "agent", "messages"}                  replaces its messages, as an edit or "regenerate" does
//   {"id", "do": "run", "agent", "parameters"}                 answers when `runAgent` has come back
//   {"id", "do": "connect", "agent"}                           answers when `connectAgent` has come back
//   {"id", "do": "abort", "agent"}
//   {"id", "do": "get", "agent"}                               its runs are read with GET, as the run service tells them
//
// Every event that a client lets through is told at once as {"agent", "event"}; whatever is written to the console, by
// whomever, as {"console", "text"}.
import { createInterface } from "node:readline";
import * as current from "ag-ui-1";
import * as last0x from "ag-ui-0";

const tell = (value) => process.stdout.write(JSON.stringify(value) + "\n");
for (const level of ["debug", "error", "info", "log", "trace", "warn"]) {
  console[level] = (...words) => tell({ console: level, text: words.map(String).join(" ") });
}
process.on("unhandledRejection", (error) => tell({ console: "unhandled", text: String(error?.stack ?? error) }));

const agents = new Map();

const commands = {
  async open({ agent, version, url, threadId, headers, messages, state, module }) {
    const { HttpAgent } = version === "0" ? last0x : current;
    const Agent = module ? (await import(module)).DragomanAgent : HttpAgent;
    const opened = new Agent({ url, threadId, headers, initialMessages: messages ?? [], initialState: state ?? {} });
    opened.subscribe({ onEvent: ({ event }) => void tell({ agent, event }) });
    agents.set(agent, opened);
  },
  say({ agent, messages }) {
    agents.get(agent).messages.push(...messages);
  },
  show({ agent, messages }) {
    agents.get(agent).setMessages(messages);
  },
  async run({ agent, parameters }) {
    const client = agents.get(agent);
    const seen = { failed: null, finished: null, runError: null };
    let result = null;
    let refused = null;
    try {
      result = await client.runAgent(parameters ?? {}, {
        onRunFailed: ({ error }) => void (seen.failed = String(error.message)),
        onRunFinishedEvent: ({ event }) => void (seen.finished = event),
        onRunErrorEvent: ({ event }) => void (seen.runError = event),
      });
    } catch (error) {
      refused = { message: String(error.message), status: error.status ?? null, payload: error.payload ?? null };
    }
    return {
      ...seen,
      refused,
      newMessages: result?.newMessages ?? [],
      messages: client.messages,
      state: client.state,
      interrupts: client.pendingInterrupts ?? [],
    };
  },
  get({ agent }) {
    const client = agents.get(agent);
    client.requestInit = () => ({ method: "GET", headers: { ...client.headers, Accept: "text/event-stream" } });
  },
  async connect({ agent }) {
    const client = agents.get(agent);
    await client.connectAgent();
    return { messages: client.messages, state: client.state };
  },
  abort({ agent }) {
    agents.get(agent).abortRun();
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  Promise.resolve()
    .then(() => commands[command.do](command))
    .then(
      (result) => tell({ id: command.id, result: result ?? null }),
      (error) => tell({ id: command.id, failure: String(error?.stack ?? error) }),
    );
}
