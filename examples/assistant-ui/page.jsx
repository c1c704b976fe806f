// The page around the chat: a form for the connection, messages, tool calls with approvals, questions, and a composer.
import { ActionBarPrimitive, BranchPickerPrimitive, ComposerPrimitive, MessagePrimitive, ThreadPrimitive } from "@assistant-ui/react";
import { useAgUiInterrupts, useAgUiSubmitInterruptResponses } from "@assistant-ui/react-ag-ui";
import { MarkdownTextPrimitive } from "@assistant-ui/react-markdown";
import { useRef, useState } from "react";
import { createRoot } from "react-dom/client";
import remarkGfm from "remark-gfm";
import { Chat } from "./chat.jsx";

const STORED = "assistant-ui-web"; // for this tab only

// --- messages --------------------------------------------------------------------------------------------------------

const Markdown = () => <MarkdownTextPrimitive remarkPlugins={[remarkGfm]} className="markdown" />;

const Reasoning = ({ text }) => (
  <details className="reasoning">
    <summary>Thinking</summary>
    {text}
  </details>
);

function ToolCall({ toolName, argsText, result, approval, respondToApproval }) {
  const isWaiting = approval && approval.approved === undefined;
  return (
    <details className="call" open={isWaiting}>
      <summary>{toolName}({argsText})</summary>
      {isWaiting ? (
        <p>
          <button className="primary" onClick={() => respondToApproval({ approved: true })}>Allow</button>
          <button onClick={() => respondToApproval({ approved: false })}>Deny</button>
        </p>
      ) : result === undefined ? "waiting" : typeof result === "string" ? result : JSON.stringify(result)}
    </details>
  );
}

const Data = ({ name, data }) => (
  <details className="call">
    <summary>{name}</summary>
    {JSON.stringify(data, null, 2)}
  </details>
);

const ANSWER_PARTS = { Text: Markdown, Reasoning, tools: { Fallback: ToolCall }, data: { Fallback: Data } };

const Branches = () => (
  <BranchPickerPrimitive.Root hideWhenSingleBranch className="branches">
    <BranchPickerPrimitive.Previous aria-label="previous version">‹</BranchPickerPrimitive.Previous>
    <BranchPickerPrimitive.Number />/<BranchPickerPrimitive.Count />
    <BranchPickerPrimitive.Next aria-label="next version">›</BranchPickerPrimitive.Next>
  </BranchPickerPrimitive.Root>
);

const UserMessage = () => (
  <MessagePrimitive.Root className="user">
    <div className="bubble"><MessagePrimitive.Parts /></div>
    <div className="actions">
      <ActionBarPrimitive.Edit>Edit</ActionBarPrimitive.Edit>
      <Branches />
    </div>
  </MessagePrimitive.Root>
);

const EditComposer = () => (
  <ComposerPrimitive.Root className="composer">
    <ComposerPrimitive.Input aria-label="message" autoFocus />
    <ComposerPrimitive.Cancel>Cancel</ComposerPrimitive.Cancel>
    <ComposerPrimitive.Send className="primary">Send</ComposerPrimitive.Send>
  </ComposerPrimitive.Root>
);

const AssistantMessage = () => (
  <MessagePrimitive.Root className="assistant">
    <MessagePrimitive.Parts components={ANSWER_PARTS} />
    <ActionBarPrimitive.Root hideWhenRunning autohide="not-last" className="actions">
      <ActionBarPrimitive.Copy>Copy</ActionBarPrimitive.Copy>
      <ActionBarPrimitive.Reload>Try again</ActionBarPrimitive.Reload>
      <Branches />
    </ActionBarPrimitive.Root>
  </MessagePrimitive.Root>
);

// --- questions -------------------------------------------------------------------------------------------------------

function Questions() {
  const questions = useAgUiInterrupts().filter((each) => each.reason !== "tool_call"); // those are shown at their calls
  const submit = useAgUiSubmitInterruptResponses();
  const form = useRef(null);
  if (questions.length === 0) return null;
  const send = (event) => {
    event.preventDefault();
    const given = new FormData(form.current);
    void submit(questions.map(({ id }) => ({ interruptId: id, status: "resolved", payload: given.get(id) })));
  };
  return (
    <form ref={form} className="questions" onSubmit={send}>
      {questions.map((each) => (
        <label key={each.id}>{each.message}<input name={each.id} required autoComplete="off" /></label>
      ))}
      <button className="primary">Answer</button>
    </form>
  );
}

// --- the page --------------------------------------------------------------------------------------------------------

const Thread = ({ agent }) => (
  <ThreadPrimitive.Root className="thread">
    <ThreadPrimitive.Viewport className="messages">
      <ThreadPrimitive.Empty><p className="empty">How can I help you today?</p></ThreadPrimitive.Empty>
      <ThreadPrimitive.Messages components={{ UserMessage, EditComposer, AssistantMessage }} />
      <Questions />
    </ThreadPrimitive.Viewport>
    <ComposerPrimitive.Root className="composer">
      <ComposerPrimitive.Input placeholder={`Message ${agent}`} aria-label="message" autoFocus />
      <ThreadPrimitive.If running><ComposerPrimitive.Cancel>Stop</ComposerPrimitive.Cancel></ThreadPrimitive.If>
      <ThreadPrimitive.If running={false}><ComposerPrimitive.Send className="primary">Send</ComposerPrimitive.Send></ThreadPrimitive.If>
    </ComposerPrimitive.Root>
  </ThreadPrimitive.Root>
);

function Connect({ onConnect }) {
  function connect(event) {
    event.preventDefault();
    onConnect(Object.fromEntries(new FormData(event.target)));
  }
  return (
    <form className="connect" onSubmit={connect}>
      <h1>Talk to an agent</h1>
      <label>Server <input name="server" defaultValue="http://127.0.0.1:8000" /></label>
      <label>Agent <input name="agent" defaultValue="assistant" /></label>
      <label>API key <input name="key" type="password" placeholder="sk-dragoman-…" autoComplete="off" /></label>
      <button className="primary">Connect</button>
    </form>
  );
}

function Page() {
  const [connection, setConnection] = useState(() => JSON.parse(sessionStorage.getItem(STORED)));
  // In the address, so that a reload and a bookmark return to the thread.
  const [threadId] = useState(() => (location.hash ||= crypto.randomUUID()).slice(1));
  function connect(value) {
    sessionStorage.setItem(STORED, JSON.stringify(value));
    setConnection(value);
  }
  if (connection === null) return <Connect onConnect={connect} />;
  const { server, agent, key } = connection;
  return <Chat url={`${server}/ag-ui/${agent}`} apiKey={key} threadId={threadId}><Thread agent={agent} /></Chat>;
}

createRoot(document.getElementById("page")).render(<Page />);
