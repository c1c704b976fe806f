// CopilotKit's chat on a thread of Dragoman, with approvals and questions.
import { CopilotChat, CopilotKitProvider, useDefaultRenderTool, useInterrupt } from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";
import { useRef, useState } from "react";
import { createRoot } from "react-dom/client";

function Interrupt({ interrupt, resolve, cancel }) {
  const input = useRef(null);
  const isApproval = interrupt.reason === "tool_call";
  return (
    <div className="interrupt">
      <p>{interrupt.message}</p>
      {!isApproval && <input ref={input} aria-label="answer" />}
      <button className="primary" onClick={() => resolve(isApproval ? { approved: true } : input.current.value)}>
        {isApproval ? "Allow" : "Answer"}
      </button>
      <button onClick={() => cancel()}>{isApproval ? "Deny" : "Skip"}</button>
    </div>
  );
}

function Chat({ threadId }) {
  useDefaultRenderTool(); // calls are shown
  useInterrupt({
    render: ({ interrupts, resolve, cancel }) => (
      <>
        {interrupts.map((each) => (
          <Interrupt
            key={each.id}
            interrupt={each}
            resolve={(payload) => resolve(payload, each.id)}
            cancel={() => cancel(each.id)}
          />
        ))}
      </>
    ),
  });
  return <CopilotChat threadId={threadId} />;
}

function Page() {
  // In the address, so that a reload and a bookmark return to the thread.
  const [threadId] = useState(() => (location.hash ||= crypto.randomUUID()).slice(1));
  return (
    <CopilotKitProvider runtimeUrl="/api/copilotkit">
      <Chat threadId={threadId} />
    </CopilotKitProvider>
  );
}

if (matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.classList.add("dark");
createRoot(document.getElementById("page")).render(<Page />);
