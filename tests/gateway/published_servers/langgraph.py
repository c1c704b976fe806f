"""LangGraph's own AG-UI server (`ag-ui-langgraph`), with two graphs.

`/outcome` reports interrupts in a run's outcome, `/custom` in events; in `/survey` two nodes ask at the same time.
"""

from ag_ui_langgraph import (  # type: ignore[import-untyped]  # the package has no types
    LangGraphAgent,
    add_langgraph_fastapi_endpoint,
)
from fastapi import FastAPI

from tests.gateway.published_servers.graphs import assistant, survey
from tests.gateway.published_servers.program import serve

app = FastAPI()
for path, is_outcome in (("/outcome", True), ("/custom", False)):
    for prefix, graph in (("", assistant()), ("/survey", survey())):
        agent = LangGraphAgent(name="assistant", graph=graph, emit_interrupt_outcome=is_outcome)
        add_langgraph_fastapi_endpoint(app, agent, prefix + path)

if __name__ == "__main__":
    serve(app)
