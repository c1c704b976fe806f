// A chat of assistant-ui whose agent runs on Dragoman.
import { HttpAgent } from "@ag-ui/client";
import { AssistantRuntimeProvider, ExportedMessageRepository } from "@assistant-ui/react";
import { fromAgUiMessages, useAgUiRuntime } from "@assistant-ui/react-ag-ui";
import { useMemo, useState } from "react";

/** Loads the thread from Dragoman: messages and how they ended, cards, files, the state, and what is pending. */
function historyOf(agent) {
  return {
    async load() {
      const blocks = [];
      const subscription = agent.subscribe({ onCustomEvent: ({ event }) => void blocks.push(event) });
      try {
        await agent.runAgent(); // without messages: the thread as it is
      } catch (error) {
        if (error.status !== 404) throw error;
        return { messages: [] }; // a new thread
      } finally {
        subscription.unsubscribe();
      }
      const messages = structuredClone(agent.messages);
      if (agent.pendingInterrupts.length > 0) {
        const last = messages.findLast((each) => each.role === "assistant");
        last.metadata = { custom: { agui: { interrupts: agent.pendingInterrupts } } };
      }
      const shown = fromAgUiMessages(messages).map((message) => {
        const { failed, interrupted } = messages.find((each) => each.id === message.id)?.metadata?.dragoman ?? {};
        const text = typeof message.content === "string" ? [{ type: "text", text: message.content }] : message.content;
        const data = blocks.filter((each) => messageIdOf(each) === message.id);
        return {
          ...message,
          content: [...text, ...data.map((each) => ({ type: "data", name: each.name, data: each.value }))],
          ...((failed || interrupted) && { status: { type: "incomplete", reason: failed ? "error" : "cancelled" } }),
        };
      });
      return { ...ExportedMessageRepository.fromArray(shown), state: agent.state };
    },
    async append() {}, // Dragoman has stored it
  };
}

const messageIdOf = (event) => event.value.messageId ?? event.metadata?.dragoman?.messageId;

export function Chat({ url, apiKey, threadId, children }) {
  const headers = { Authorization: `Bearer ${apiKey}`, "X-Message-History": "complete" };
  const [agent] = useState(() => new HttpAgent({ url, threadId, headers }));
  const adapters = useMemo(() => ({ history: historyOf(agent) }), [agent]);
  const runtime = useAgUiRuntime({ agent, adapters, onError: console.warn });
  return <AssistantRuntimeProvider runtime={runtime}>{children}</AssistantRuntimeProvider>;
}
