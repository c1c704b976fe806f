// A chat page on the official `useChat`: streaming, reasoning, a tool in the page, approvals, questions, stop, regenerate,
// and a chat that survives a reload in the middle of an answer.
import { useChat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from "ai";
import Markdown from "markdown-to-jsx";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

const settings = new URLSearchParams(location.hash.slice(1)); // #agent=assistant&chat=chat-1&key=sk-dragoman-…
const server = settings.get("server") ?? "http://127.0.0.1:8000";
const id = settings.get("chat") ?? "chat-1";
const api = `${server}/ai-sdk/${settings.get("agent") ?? "assistant"}`;
const headers = { Authorization: `Bearer ${settings.get("key")}` };
const chat = `${api}/${encodeURIComponent(id)}`;

const MARKDOWN = { disableParsingRawHTML: true, forceBlock: true };

const tools = {
  color_page: {
    description: "Change the background of the page.",
    inputSchema: { type: "object", properties: { color: { type: "string" } }, required: ["color"] },
  },
};

function runTool(toolName, input) {
  if (toolName !== "color_page") return undefined;
  document.body.style.background = input.color;
  return `The page is ${input.color} now.`;
}

function Chat({ initial }) {
  const [text, setText] = useState("");
  const { messages, sendMessage, status, stop, error, regenerate, addToolOutput, addToolApprovalResponse } = useChat({
    id,
    messages: initial,
    resume: initial.length > 0,
    transport: new DefaultChatTransport({ api, headers, body: { tools } }),
    sendAutomaticallyWhen: (chat) =>
      lastAssistantMessageIsCompleteWithToolCalls(chat) || lastAssistantMessageIsCompleteWithApprovalResponses(chat),
    onToolCall: ({ toolCall }) => answer(toolCall.toolName, toolCall),
  });

  function answer(tool, { toolCallId, input }) {
    const output = runTool(tool, input);
    if (output !== undefined) addToolOutput({ tool, toolCallId, output }); // not awaited: that would block the stream
  }

  useEffect(() => {
    // What waited when the page was left: `onToolCall` is not called for it.
    for (const part of initial.at(-1)?.parts ?? []) {
      if (part.state === "input-available") answer(part.type.replace("tool-", ""), part);
    }
  }, []);

  useEffect(() => void scrollTo(0, document.body.scrollHeight), [messages]);

  function halt() {
    fetch(`${chat}/stop`, { method: "POST", headers }); // ends the run; `stop` alone only stops listening
    stop();
  }

  function send(event) {
    event.preventDefault();
    sendMessage({ text });
    setText("");
  }

  const show = (part, index, role) => {
    if (part.type === "text" && role === "user") return <div key={index}>{part.text}</div>;
    if (part.type === "text") return <Markdown key={index} options={MARKDOWN}>{part.text}</Markdown>;
    if (part.type === "reasoning") return <div key={index} className="reasoning">{part.text}</div>;
    if (part.type === "file") return <img key={index} src={part.url} alt="" width="200" />;
    if (part.type === "tool-AskUserQuestion" && part.state === "input-available") {
      const answer = (output) => addToolOutput({ tool: "AskUserQuestion", toolCallId: part.toolCallId, output });
      return <Question key={index} {...part.input.questions[0]} onAnswer={answer} />;
    }
    if (part.state === "approval-requested") {
      const tool = part.type.replace("tool-", "");
      const answer = (approved) => addToolApprovalResponse({ id: part.approval.id, approved });
      return (
        <div key={index}>
          <div className="tool">{tool} {JSON.stringify(part.input)}</div>
          <button onClick={() => answer(true)}>Allow {tool}</button>
          <button onClick={() => answer(false)}>Deny</button>
        </div>
      );
    }
    if (part.toolCallId) return <div key={index} className="tool">{part.toolName ?? part.type.replace("tool-", "")}: {part.state}</div>;
    return null;
  };

  const isBusy = status === "submitted" || status === "streaming";
  return (
    <>
      {messages.map((message) => (
        <div key={message.id} className={`message ${message.role}`}>{message.parts.map((part, index) => show(part, index, message.role))}</div>
      ))}
      {error && <p className="error">{error.message}</p>}
      <form id="say" onSubmit={send}>
        <input id="text" value={text} onChange={(event) => setText(event.target.value)} placeholder="Say something" aria-label="message" />
        <button id="send" className="primary" disabled={isBusy || !text}>Send</button>
        <button id="stop" type="button" disabled={!isBusy} onClick={halt}>Stop</button>
        <button id="again" type="button" disabled={isBusy || !messages.length} onClick={() => regenerate()}>Again</button>
      </form>
    </>
  );
}

function Question({ question, options = [], onAnswer }) {
  function submit(event) {
    event.preventDefault();
    onAnswer(new FormData(event.target).get("answer"));
  }
  return (
    <form onSubmit={submit}>
      <p>{question}</p>
      {options.map(({ label }) => <button key={label} type="button" onClick={() => onAnswer(label)}>{label}</button>)}
      <input name="answer" required autoComplete="off" aria-label="answer" placeholder={options.length ? "Something else" : ""} /> <button>Answer</button>
    </form>
  );
}

function Connect() {
  function connect(event) {
    event.preventDefault();
    settings.set("chat", crypto.randomUUID());
    for (const [name, value] of new FormData(event.target)) settings.set(name, value);
    location.hash = settings;
    location.reload();
  }
  return (
    <form id="connect" onSubmit={connect}>
      <h1>Talk to an agent</h1>
      <label>Server <input name="server" defaultValue={server} /></label>
      <label>Agent <input name="agent" defaultValue="assistant" /></label>
      <label>API key <input name="key" type="password" placeholder="sk-dragoman-…" autoComplete="off" /></label>
      <button className="primary">Connect</button>
    </form>
  );
}

const root = createRoot(document.getElementById("page"));
if (settings.has("key")) {
  const initial = await (await fetch(`${chat}/messages`, { headers })).json();
  root.render(<Chat initial={initial} />);
} else root.render(<Connect />);
