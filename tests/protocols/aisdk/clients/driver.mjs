// Official AI SDK clients under remote control: a command is a line of JSON on stdin, an answer or an event one on stdout.
//
//   {"id", "do": "open", "chat", "version", "api", "chatId", "headers", "messages", "body", "automatic", "tools", "only", "workflow",
//                                                 "module", "stopsAtOnce"}
//                                                 `module`: the package `@dragoman/ai-sdk`, to be used by the page
//                                                 `stopsAtOnce`: while a message is being sent
//   {"id", "do": "send", "chat", "message"}        `sendMessage`; an edit if the message has a `messageId`, or none at all
//   {"id", "do": "regenerate" | "output" | "approve" | "resume", "chat", "options"}
//   {"id", "do": "stop" | "halt" | "show", "chat"} `halt`: with the package's `stopChat`
//   {"id", "do": "cut", "chat", "after"}           break the connection of each response after so many bytes
//   {"id", "do": "check", "chat", "messages"}      validate a history with the library's own functions
//
// Commands that ask the server for something answer with the client's state once it is at rest. Whenever a message of a
// chat changes, {"chat", "text"} tells the text of the last one, if it is the agent's.
import { createInterface } from "node:readline";
import * as ai5 from "ai5";
import * as ai50 from "ai50";
import * as ai60 from "ai60";
import * as ai6 from "ai6";
import * as ai7 from "ai";
import { WorkflowChatTransport } from "@ai-sdk/workflow/client";

const LIBRARIES = { "5.0": ai50, 5: ai5, "6.0": ai60, 6: ai6, 7: ai7 };
const tell = (value) => process.stdout.write(JSON.stringify(value) + "\n");
for (const level of ["debug", "error", "info", "log", "trace", "warn"]) {
  console[level] = (...words) => tell({ console: level, text: words.map(String).join(" ") });
}
process.on("unhandledRejection", (error) => tell({ console: "unhandled", text: String(error?.stack ?? error) }));

const textOf = (message) => (message?.role === "assistant" ? message.parts : []).map((part) => (part.type === "text" ? part.text : "")).join("");

class State {
  status = "ready";
  error = undefined;
  constructor(name, messages) {
    this.name = name;
    this.messages = messages;
  }
  changed = () => tell({ chat: this.name, text: textOf(this.messages.at(-1)) });
  pushMessage = (message) => ((this.messages = this.messages.concat(message)), this.changed());
  popMessage = () => (this.messages = this.messages.slice(0, -1));
  replaceMessage = (index, message) => {
    this.messages = [...this.messages.slice(0, index), this.snapshot(message), ...this.messages.slice(index + 1)];
    this.changed();
  };
  snapshot = (thing) => structuredClone(thing);
}

const chats = new Map();

function conditions(library, automatic) {
  const tools = library.lastAssistantMessageIsCompleteWithToolCalls;
  const approvals = library.lastAssistantMessageIsCompleteWithApprovalResponses ?? (() => false);
  if (automatic === "always") return () => true;
  return automatic ? (messages) => tools(messages) || approvals(messages) : undefined;
}

function broken(response, after) {
  let left = after;
  const cutting = new TransformStream({
    transform(bytes, controller) {
      if (bytes.length <= left) return void ((left -= bytes.length), controller.enqueue(bytes));
      controller.enqueue(bytes.slice(0, left));
      controller.error(new TypeError("network error"));
    },
  });
  return new Response(response.body.pipeThrough(cutting), response);
}

async function atRest(opened) {
  for (let quiet = 0; quiet < 3; ) {
    await new Promise((resolve) => setImmediate(resolve));
    const isQuiet = ["ready", "error"].includes(opened.chat.status) && opened.busy === 0;
    quiet = isQuiet ? quiet + 1 : 0;
  }
  const { chat, seen } = opened;
  const error = chat.error ? { message: chat.error.message, status: chat.error.statusCode ?? null } : null;
  const result = { messages: chat.messages, status: chat.status, error, ...structuredClone(seen) };
  Object.assign(seen, { requests: [], calls: [], data: [], finished: null });
  return result;
}

const commands = {
  async open({ chat: name, version, api, chatId, headers, messages, body, automatic, tools, only, workflow, module, stopsAtOnce }) {
    const library = LIBRARIES[version];
    const helpers = module ? await import(module) : null;
    const opened = { busy: 0, cut: null, seen: { requests: [], calls: [], data: [], finished: null } };
    const fetchAndNote = async (url, init) => {
      opened.busy++;
      try {
        const answer = fetch(url, init);
        if (stopsAtOnce && url === api) queueMicrotask(() => opened.chat.stop());
        const response = await answer;
        const run = response.headers.get("x-workflow-run-id");
        opened.seen.requests.push({ method: init?.method ?? "GET", url: String(url), status: response.status, run });
        return opened.cut !== null && response.body ? broken(response, opened.cut) : response;
      } finally {
        opened.busy--;
      }
    };
    const prepare = ({ id, messages, trigger, messageId }) => ({
      body: { ...body, id, messages: only ? messages.slice(-only) : messages, trigger, messageId },
      headers,
    });
    const transport = workflow
      ? new WorkflowChatTransport({
          api,
          fetch: fetchAndNote,
          maxConsecutiveErrors: 30,
          prepareSendMessagesRequest: prepare,
          prepareReconnectToStreamRequest: ({ api }) => ({ api, headers }),
        })
      : new library.DefaultChatTransport({
          api,
          headers,
          body,
          fetch: helpers ? helpers.stoppingFetch(fetchAndNote) : fetchAndNote,
          ...(only ? { prepareSendMessagesRequest: helpers?.onlyNewest ?? prepare } : {}),
        });
    opened.address = { api, id: chatId, headers, fetch: fetchAndNote };
    opened.helpers = helpers;
    if (helpers) messages = await helpers.loadMessages(opened.address);
    opened.chat = new (class extends library.AbstractChat {})({
      id: chatId,
      transport,
      state: new State(name, messages ?? []),
      onToolCall: ({ toolCall }) => {
        opened.seen.calls.push(toolCall.toolName);
        if (tools && toolCall.toolName in tools) {
          const output = tools[toolCall.toolName];
          void opened.chat.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output });
        }
      },
      onData: (part) => void opened.seen.data.push(part),
      onFinish: ({ finishReason, isAbort, isDisconnect, isError }) =>
        void (opened.seen.finished = { finishReason, isAbort, isDisconnect, isError }),
      sendAutomaticallyWhen: conditions(library, automatic),
    });
    chats.set(name, opened);
  },
  async send({ chat, message }) {
    await chats.get(chat).chat.sendMessage(message ?? undefined);
    return atRest(chats.get(chat));
  },
  async regenerate({ chat, options }) {
    await chats.get(chat).chat.regenerate(options);
    return atRest(chats.get(chat));
  },
  async output({ chat, options }) {
    await chats.get(chat).chat.addToolOutput(options);
    return atRest(chats.get(chat));
  },
  async approve({ chat, options }) {
    await chats.get(chat).chat.addToolApprovalResponse(options);
    return atRest(chats.get(chat));
  },
  async resume({ chat }) {
    await chats.get(chat).chat.resumeStream();
    return atRest(chats.get(chat));
  },
  async stop({ chat }) {
    await chats.get(chat).chat.stop();
    return atRest(chats.get(chat));
  },
  async halt({ chat }) {
    const { helpers, address } = chats.get(chat);
    return helpers.stopChat(address);
  },
  show: ({ chat }) => atRest(chats.get(chat)),
  cut({ chat, after }) {
    chats.get(chat).cut = after;
  },
  async check({ version, messages }) {
    const library = LIBRARIES[version];
    const checked = await library.safeValidateUIMessages?.({ messages }); // not in 5.0
    if (checked && !checked.success) throw checked.error;
    return (await library.convertToModelMessages(messages)).map((message) => message.role);
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
