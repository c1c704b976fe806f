"""The server of `agentscope-runtime`, which speaks the Agent API, AG-UI, A2A and Responses, in front of a graph."""

from typing import Any

from agentscope_runtime.engine import AgentApp  # type: ignore[import-untyped]  # the package has no types

from tests.gateway.published_servers.graphs import assistant
from tests.gateway.published_servers.program import serve

app = AgentApp(app_name="assistant", app_description="Forecasts the weather.")
graph = assistant()


@app.query(framework="langgraph")  # type: ignore[untyped-decorator]  # the package has no types
async def query(self: Any, msgs: Any, request: Any = None, **_: Any):  # type: ignore[no-untyped-def]  # it becomes a route, for which an iterator is no valid type
    """Stream the graph's messages, as the runtime's documentation does."""
    config = {"configurable": {"thread_id": request.session_id}}
    async for chunk, _ in graph.astream({"messages": msgs}, config, stream_mode="messages"):
        yield chunk, getattr(chunk, "chunk_position", "") == "last"


if __name__ == "__main__":
    serve(app)
