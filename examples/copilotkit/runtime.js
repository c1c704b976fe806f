// A CopilotKit runtime whose agent runs on Dragoman.
import { randomUUID } from "node:crypto";
import { HttpAgent } from "@ag-ui/client";
import { CopilotRuntime, createCopilotRuntimeHandler, InMemoryAgentRunner } from "@copilotkit/runtime/v2";
import { createCopilotNodeHandler } from "@copilotkit/runtime/v2/node";
import { catchError, EMPTY } from "rxjs";

/** Reads threads from Dragoman, which has all of them, also after a restart of this runtime. */
class DragomanRunner extends InMemoryAgentRunner {
  constructor(url) {
    super();
    this.url = url;
  }

  connect({ threadId, headers }) {
    const thread = new HttpAgent({ url: `${this.url}/connect`, headers });
    const input = { threadId, runId: randomUUID(), messages: [], tools: [], context: [], forwardedProps: {} };
    return thread.run(input).pipe(
      catchError((error) => {
        if (error.status !== 404) throw error;
        return EMPTY; // a new thread
      }),
    );
  }
}

/** A listener for Node's HTTP server; `url` is that of the agent, such as http://127.0.0.1:8000/ag-ui/assistant. */
export function copilotKit(url, key, basePath = "/api/copilotkit") {
  const headers = { Authorization: `Bearer ${key}`, "X-Message-History": "complete" };
  const agent = new HttpAgent({ url, headers });
  const runtime = new CopilotRuntime({ agents: { default: agent }, runner: new DragomanRunner(url) });
  return createCopilotNodeHandler(createCopilotRuntimeHandler({ runtime, basePath }));
}
