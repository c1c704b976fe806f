// The official AG-UI client as a React hook: messages as they grow, what waits for the user, and the page's own tools.
import { HttpAgent } from "@ag-ui/client";
import { useEffect, useReducer, useRef, useState } from "react";

export function useAgent({ url, key, threadId, isNew, tools }) {
  const agent = useRef(null);
  const [isRunning, setRunning] = useState(false);
  const [error, setError] = useState("");
  const [, redraw] = useReducer((count) => count + 1, 0);

  async function run(parameters = {}) {
    setRunning(true);
    setError("");
    try {
      const declared = tools.map(({ execute, ...declaration }) => declaration);
      await agent.current.runAgent({ tools: declared, ...parameters });
    } catch (failure) {
      setError(failure.status === 404 ? "There is no such conversation yet." : failure.message);
    }
    if (answerOwnTools()) await run();
    setRunning(false);
  }

  // Runs the calls of the page's tools that have no result yet. Approvals come first.
  function answerOwnTools() {
    const { messages, pendingInterrupts } = agent.current;
    if (pendingInterrupts.length) return false;
    const answered = new Set(messages.filter((each) => each.role === "tool").map((each) => each.toolCallId));
    const calls = messages.flatMap((each) => each.toolCalls ?? []).filter((call) => !answered.has(call.id));
    const own = calls.flatMap((call) => {
      const tool = tools.find((each) => each.name === call.function.name);
      return tool ? [[call, tool]] : [];
    });
    for (const [call, tool] of own) {
      const content = tool.execute(JSON.parse(call.function.arguments));
      messages.push({ id: crypto.randomUUID(), role: "tool", toolCallId: call.id, content });
    }
    return own.length > 0;
  }

  useEffect(() => {
    const headers = {
      Authorization: `Bearer ${key}`,
      "X-Run-On-Disconnect": "continue", // runs survive a reload
      "X-Message-History": "complete", // an edited first message replaces the first one
    };
    agent.current = new HttpAgent({ url, headers, threadId });
    agent.current.subscribe({
      onMessagesChanged: redraw,
      onRunErrorEvent: ({ event }) => event.code !== "abort" && setError(event.message),
    });
    redraw();
    if (isNew) return;
    agent.current.url = `${url}/connect`; // loads the thread, and joins its active run
    run().finally(() => (agent.current.url = url));
  }, [url, key, threadId]);

  return {
    messages: agent.current?.messages ?? [],
    interrupts: isRunning ? [] : (agent.current?.pendingInterrupts ?? []),
    isRunning,
    error,
    send(content) {
      agent.current.messages.push({ id: crypto.randomUUID(), role: "user", content });
      return run();
    },
    answer: (resume) => run({ resume }),
    // `abortRun` would only disconnect, and the run would continue without a reader.
    stop: () => fetch(`${url}/stop/${encodeURIComponent(threadId)}`, { method: "POST", headers: agent.current.headers }),
  };
}
