// CopilotKit and assistant-ui under remote control: a command is a line of JSON on stdin, an answer one on stdout.
//
//   {"do": "serve", "name", "url", "key"}                      starts a runtime of CopilotKit
//   {"do": "open", "page", "kind", "runtime" or "url" and "key", "threadId", "tools"}
//                                                              opens a page and loads the thread, as a browser does
//   {"do": "send", "page", "text", "messageId"}                says something as a user
//   {"do": "edit", "page", "place", "text", "messageId"}       edits the message at that place
//   {"do": "regenerate", "page", "place"}                      asks for another answer in place of that message
//   {"do": "approve", "page", "approved"}                      answers the approval that the page shows
//   {"do": "stop", "page"}
//   {"do": "show", "page"}                                     what the page shows, once it does not run
//   {"do": "until", "page", "text"}                            waits until the page shows a text
//
// Commands that start a run answer when it has ended, with what the page shows.
import { createServer } from "node:http";
import Module, { createRequire, register } from "node:module";
import { createInterface } from "node:readline";

process.env.COPILOTKIT_TELEMETRY_DISABLED = "true";
process.env.NODE_ENV = "production"; // the test renderer says that it is one
register("./hooks.mjs", import.meta.url);
const examples = new URL("../../../../examples/", import.meta.url);
const { z } = await import("zod");
const { createElement, useEffect, useState } = await import("react");
const { default: renderer } = await import("react-test-renderer");
const { useAui } = await import("@assistant-ui/store");
const { useAgUiState } = await import("@assistant-ui/react-ag-ui");
const modules = new URL("node_modules/@assistant-ui/react-ag-ui/dist/", import.meta.url);
const { AgUiThreadRuntimeCore: Core } = await import(new URL("runtime/AgUiThreadRuntimeCore.js", modules));
const { copilotKit } = await import(new URL("copilotkit/runtime.js", examples));
const { Chat } = await import(new URL("assistant-ui/chat.jsx", examples));

globalThis.window = globalThis; // CopilotKit connects in browsers only
globalThis.addEventListener = globalThis.removeEventListener = () => {};

// react-core has the hooks beside its components, which nothing here renders: what these import is not installed.
const shownOnly = /^(@radix-ui\/|@tanstack\/|lucide-react|react-dom|react-markdown|streamdown|tailwind-merge|use-stick-to-bottom|class-variance-authority|@copilotkit\/(a2ui-renderer|mcp-apps-renderer|web-components|web-inspector))|\.css$/;
const nothing = new Proxy(function () {}, {
  get: (_, name) => (name === Symbol.toPrimitive ? () => "" : name === "__esModule" || nothing),
  apply: () => nothing,
});
const load = Module._load;
Module._load = (name, ...rest) => (shownOnly.test(name) ? nothing : load(name, ...rest));
const require = createRequire(import.meta.url);
const { CopilotKit, useCopilotChatInternal } = require("@copilotkit/react-core");
const { useCopilotKit } = require("@copilotkit/react-core/v2/context");

const tell = (value) => process.stdout.write(JSON.stringify(value) + "\n");
for (const level of ["debug", "error", "info", "log", "trace", "warn"]) {
  console[level] = (...words) => tell({ console: level, text: words.map((each) => String(each?.stack ?? each)).join(" ") });
}
process.on("unhandledRejection", (error) => tell({ console: "unhandled", text: String(error?.stack ?? error) }));

const runtimes = new Map();
const pages = new Map();
const textOf = (content) => (typeof content === "string" ? content : (content ?? []).map((each) => each.text ?? "").join(""));
const answers = (messages) => messages.filter((each) => each.role === "assistant").map((each) => textOf(each.content));
const tick = () => new Promise((resolve) => setTimeout(resolve, 5));

let shown = []; // pages on the thread that is tested
function show(threadId, page) {
  shown.filter((each) => each.threadId !== threadId).forEach((each) => each.root.unmount());
  shown = shown.filter((each) => each.threadId === threadId);
  shown.push({ threadId, root: renderer.create(page, { unstable_isConcurrent: true }) });
}

class Page {
  asked = 0;
  // Renders when asked to; to be called inside a component.
  useRenders() {
    const [asked, ask] = useState(0);
    this.ask = ask;
    useEffect(() => void (this.rendered = asked));
  }
  // Waits until the page shows what its runtime has: one render for the runtime, and one for what depends on it.
  async render() {
    for (let renders = 0; renders < 2; renders++) {
      this.ask(++this.asked);
      while (this.rendered !== this.asked) await tick();
    }
  }
}

class CopilotKitPage extends Page {
  async open({ runtime, threadId, tools }) {
    this.errors = [];
    this.custom = [];
    const page = this;
    function Inside() {
      page.useRenders();
      page.chat = useCopilotChatInternal();
      const { copilotkit } = useCopilotKit();
      if (page.core === undefined) page.watch(copilotkit, tools ?? {});
      return null;
    }
    const runtimeUrl = `http://127.0.0.1:${runtimes.get(runtime)}/api/copilotkit`;
    const provider = createElement(CopilotKit, { runtimeUrl, agent: "default", threadId, showDevConsole: false }, createElement(Inside));
    show(threadId, provider);
    while (this.connecting === undefined) await tick();
    await this.connecting;
    await this.render();
  }
  watch(core, tools) {
    this.core = core;
    core.subscribe({ onError: ({ error }) => void this.errors.push(String(error.message)) });
    for (const [name, result] of Object.entries(tools)) {
      core.addTool({ name, description: name, parameters: z.object({}).passthrough(), handler: async () => result });
    }
    const connect = core.connectAgent.bind(core);
    core.connectAgent = (options) => {
      this.agent = options.agent;
      this.subscription?.unsubscribe(); // a page that is slow to render connects again
      this.custom = [];
      this.subscription = this.agent.subscribe({
        onCustomEvent: ({ event }) => void this.custom.push(event),
        onRunFinishedEvent: ({ input }) => void (this.finished = input.runId),
        onRunErrorEvent: ({ event }) => void this.errors.push(event.message),
      });
      return (this.connecting = connect(options));
    };
  }
  async send({ text, messageId }) {
    this.agent.addMessage({ id: messageId ?? crypto.randomUUID(), role: "user", content: text });
    await this.core.runAgent({ agent: this.agent });
  }
  async edit({ place, text, messageId }) {
    this.agent.setMessages(this.agent.messages.slice(0, place));
    await this.send({ text, messageId });
  }
  async regenerate({ place }) {
    await this.render(); // a user presses a button that is there
    await this.chat.reloadMessages(this.agent.messages[place].id);
  }
  async approve({ approved }) {
    const resume = this.agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved } }));
    await this.core.runAgent({ agent: this.agent, resume, runId: this.finished }); // as useInterrupt of react-core does
  }
  stop() {
    this.core.stopAgent({ agent: this.agent });
  }
  texts() {
    return answers(this.agent.messages);
  }
  isRunning() {
    return this.agent.isRunning;
  }
  show() {
    const { messages, state, pendingInterrupts } = this.agent;
    return { messages, state, interrupts: pendingInterrupts, errors: this.errors, custom: this.custom };
  }
}

// When a thread is loaded, and when its runs end, is asked of the core of assistant-ui's runtime: what happens between two
// renders, such as a short run on a busy machine, is never seen by a component.
const { __internal_load: loadThread, startRun } = Core.prototype;
let opening;
Core.prototype.__internal_load = function () {
  const loaded = loadThread.call(this);
  opening?.({ core: this, loaded });
  opening = undefined;
  return loaded;
};
Core.prototype.startRun = async function (...run) {
  try {
    return await startRun.apply(this, run);
  } finally {
    this.ended = (this.ended ?? 0) + 1;
  }
};

class AssistantUiPage extends Page {
  async open({ url, key, threadId, tools }) {
    this.errors = [];
    const page = this;
    const registerTools = (aui) => {
      const of = ([name, result]) => [name, { description: name, parameters: { type: "object" }, execute: async () => result }];
      aui.modelContext().register({ getModelContext: () => ({ tools: Object.fromEntries(Object.entries(tools ?? {}).map(of)) }) });
    };
    function Inside() {
      const aui = useAui();
      page.useRenders();
      page.state = useAgUiState();
      if (page.aui === undefined) registerTools(aui);
      page.aui = aui;
      return null;
    }
    const begun = new Promise((resolve) => (opening = resolve));
    show(threadId, createElement(Chat, { url, apiKey: key, threadId }, createElement(Inside)));
    const { core, loaded } = await begun;
    this.core = core;
    await loaded;
    await this.render();
  }
  thread() {
    return this.aui.thread();
  }
  async run(action) {
    const before = this.core.ended;
    action();
    while (this.core.ended === before || this.isRunning()) await tick();
    await this.render();
  }
  isRunning() {
    return this.core.isRunning();
  }
  async send({ text }) {
    await this.run(() => this.thread().append(text));
  }
  async edit({ place, text }) {
    const composer = this.thread().message({ index: place }).composer();
    composer.beginEdit();
    composer.setText(text);
    await this.run(() => composer.send());
  }
  async regenerate({ place }) {
    await this.run(() => this.thread().message({ index: place }).reload());
  }
  async approve({ approved }) {
    const parts = this.thread().getState().messages.flatMap((each) => each.content);
    const { toolCallId } = parts.find((each) => each.approval !== undefined && each.approval.approved === undefined);
    const index = this.thread().getState().messages.findIndex((each) => each.content.some((part) => part.toolCallId === toolCallId));
    await this.run(() => this.thread().message({ index }).part({ toolCallId }).respondToToolApproval({ approved }));
  }
  stop() {
    this.thread().cancelRun();
  }
  texts() {
    return answers(this.thread().getState().messages);
  }
  show() {
    const { messages } = this.thread().getState();
    return { messages, state: this.state, errors: this.errors };
  }
}

const commands = {
  async serve({ name, url, key }) {
    const server = createServer(copilotKit(url, key));
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    runtimes.set(name, server.address().port);
  },
  async open({ page, kind, ...options }) {
    pages.set(page, kind === "copilotkit" ? new CopilotKitPage() : new AssistantUiPage());
    await pages.get(page).open(options);
    return pages.get(page).show();
  },
  async show({ page }) {
    while (pages.get(page).isRunning()) await tick();
    await pages.get(page).render();
    return pages.get(page).show();
  },
  async until({ page, text }) {
    while (!pages.get(page).texts().some((each) => each.includes(text))) await tick();
  },
};
for (const name of ["send", "edit", "regenerate", "approve", "stop"]) {
  commands[name] = async ({ page, ...options }) => {
    await pages.get(page)[name](options);
    return pages.get(page).show();
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  Promise.resolve()
    .then(() => commands[command.do](command))
    .then(
      (result) => tell({ id: command.id, result: result ?? null }),
      (error) => tell({ id: command.id, failure: String(error?.stack ?? error) }),
    );
}
process.exit();
