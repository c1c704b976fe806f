// A chat page on the official AG-UI client: streaming, a tool that runs in the page, approvals and questions, a stop
// button, and a thread that survives a reload, even while an answer is being generated.
import Markdown from "markdown-to-jsx";
import { useEffect, useRef, useState } from "react";
import { createRoot } from "react-dom/client";
import { useAgent } from "./useAgent.js";

const TOOLS = [
  {
    name: "color_page",
    description: "Set the background color of the page that the user sees.",
    parameters: { type: "object", properties: { color: { type: "string" } }, required: ["color"] },
    execute({ color }) {
      document.body.style.background = color;
      return `The page is ${color} now.`;
    },
  },
];

const MARKDOWN = { disableParsingRawHTML: true, forceBlock: true };
const STORED = "ag-ui-web"; // for this tab only

// --- the connection --------------------------------------------------------------------------------------------------

function Connect({ onConnect }) {
  function connect(event) {
    event.preventDefault();
    onConnect(Object.fromEntries(new FormData(event.target)));
  }
  return (
    <form id="settings" onSubmit={connect}>
      <h1>Talk to an agent</h1>
      <label>Server <input id="server" name="server" defaultValue="http://127.0.0.1:8000" /></label>
      <label>Agent <input id="agent" name="agent" defaultValue="assistant" /></label>
      <label>API key <input id="key" name="key" type="password" placeholder="sk-dragoman-…" /></label>
      <button className="primary">Connect</button>
    </form>
  );
}

// --- messages --------------------------------------------------------------------------------------------------------

function Message({ message, results }) {
  if (message.role === "tool") return null; // shown with its call
  if (message.role === "activity") return <Activity type={message.activityType} content={message.content} />;
  const text = typeof message.content === "string" ? message.content : textOf(message.content ?? []);
  const calls = (message.toolCalls ?? []).filter((each) => each.function.name !== "AskUserQuestion" || results.has(each.id));
  return (
    <>
      {text && (
        <div className={`message ${message.role}`}>
          {message.role === "assistant" ? <Markdown options={MARKDOWN}>{text}</Markdown> : text}
        </div>
      )}
      {calls.map((call) => (
        <details key={call.id} className="call">
          <summary><b>{call.function.name}</b> {call.function.arguments}</summary>
          {results.get(call.id) ?? "waiting"}
        </details>
      ))}
    </>
  );
}

function Activity({ type, content }) {
  if (type !== "PLAN") return <div className="call">{JSON.stringify(content)}</div>;
  return <ul className="plan">{content.steps.map(({ title, status }) => <li key={title} className={status}>{title}</li>)}</ul>;
}

function textOf(parts) {
  return parts.map((part) => (part.type === "text" ? part.text : `[${part.type}]`)).join("");
}

// --- approvals and questions -----------------------------------------------------------------------------------------

function Interrupts({ interrupts, calls, onAnswer }) {
  const [answers, setAnswers] = useState({});
  function give(interrupt, entry) {
    const given = { ...answers, [interrupt.id]: { interruptId: interrupt.id, ...entry } };
    setAnswers(given);
    if (interrupts.every((each) => given[each.id])) onAnswer(interrupts.map((each) => given[each.id])); // all together
  }
  return interrupts
    .filter((each) => !answers[each.id])
    .map((each) => (
      <Interrupt key={each.id} interrupt={each} choices={choicesOf(calls.get(each.toolCallId))} onAnswer={(entry) => give(each, entry)} />
    ));
}

/** What an `AskUserQuestion` offers, if it asks a single question. */
function choicesOf(call) {
  if (call?.function.name !== "AskUserQuestion") return [];
  const { questions } = JSON.parse(call.function.arguments);
  return questions.length === 1 ? (questions[0].options ?? []).map((each) => each.label) : [];
}

function Interrupt({ interrupt, choices, onAnswer }) {
  const input = useRef(null);
  const isApproval = interrupt.reason === "tool_call";
  const resolve = (payload) => onAnswer({ status: "resolved", payload });
  return (
    <div className="interrupt">
      <p>{interrupt.message}</p>
      {choices.map((each) => <button key={each} onClick={() => resolve(each)}>{each}</button>)}
      {!isApproval && <input ref={input} aria-label="answer" placeholder={choices.length ? "Something else" : ""} />}
      <button className="primary" onClick={() => resolve(isApproval ? { approved: true } : input.current.value)}>
        {isApproval ? "Allow" : "Answer"}
      </button>
      <button onClick={() => onAnswer({ status: "cancelled" })}>{isApproval ? "Deny" : "Skip"}</button>
    </div>
  );
}

// --- the page --------------------------------------------------------------------------------------------------------

function Chat({ connection, onLeave }) {
  const { server, agent, key } = connection;
  const [known] = useState(() => location.hash.slice(1)); // reloads and bookmarks return to a thread
  const [threadId] = useState(() => known || crypto.randomUUID());
  const chat = useAgent({ url: `${server}/ag-ui/${agent}`, key, threadId, isNew: !known, tools: TOOLS });
  const calls = new Map(chat.messages.flatMap((each) => (each.toolCalls ?? []).map((call) => [call.id, call])));
  const results = new Map(chat.messages.flatMap((each) => (each.role === "tool" ? [[each.toolCallId, each.content]] : [])));
  const end = useRef(null);
  useEffect(() => void (location.hash = threadId), [threadId]);
  useEffect(() => void end.current.scrollIntoView({ block: "end" }));

  function say(event) {
    event.preventDefault();
    const content = event.target.elements.text.value.trim();
    if (!content) return;
    event.target.reset();
    void chat.send(content);
  }

  return (
    <>
      <header>
        <b>{agent}</b>
        <button onClick={() => ((location.hash = ""), location.reload())}>New chat</button>
        <button onClick={onLeave}>Disconnect</button>
      </header>
      <main id="log" aria-live="polite">
        {!chat.messages.length && !chat.isRunning && <p className="empty">How can I help you today?</p>}
        {chat.messages.map((each) => <Message key={each.id} message={each} results={results} />)}
        {chat.isRunning && <div className="busy" role="status" aria-label="the agent is working" />}
        {chat.error && <div className="message error">{chat.error}</div>}
        <Interrupts key={chat.interrupts.map((each) => each.id).join()} interrupts={chat.interrupts} calls={calls} onAnswer={chat.answer} />
        <div ref={end} />
      </main>
      <form id="say" onSubmit={say}>
        <input id="text" name="text" placeholder={`Message ${agent}`} aria-label="message" autoComplete="off" />
        <button id="stop" type="button" disabled={!chat.isRunning} onClick={chat.stop}>Stop</button>
        <button id="send" className="primary" disabled={chat.isRunning}>Send</button>
      </form>
    </>
  );
}

function Page() {
  const [connection, setConnection] = useState(() => JSON.parse(sessionStorage.getItem(STORED)));
  function change(value) {
    sessionStorage.setItem(STORED, JSON.stringify(value));
    setConnection(value);
  }
  return connection ? <Chat connection={connection} onLeave={() => change(null)} /> : <Connect onConnect={change} />;
}

createRoot(document.getElementById("page")).render(<Page />);
