"""An A2A agent of the official SDK, which asks a question. Needs `pip install a2a-sdk uvicorn`.

Start it with `uvicorn --app-dir examples/remote_agents a2a_server:app --port 9001`, and serve it on every protocol with
`dragoman serve barista=a2a+http://127.0.0.1:9001`.
"""

from a2a.helpers import new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Role
from starlette.applications import Starlette


class Barista(AgentExecutor):
    """Asks what to drink, and brings it."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        is_answer = context.current_task is not None
        if not is_answer:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        if not is_answer:
            await updater.requires_input(new_text_message("Tea or coffee?", role=Role.ROLE_AGENT))
            return
        for index, word in enumerate(("Here ", "is ", f"your {context.get_user_input()}.")):
            await updater.add_artifact([new_text_part(word)], artifact_id="answer", append=index > 0)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()


card = AgentCard(
    name="barista",
    description="Brings hot drinks",
    version="1.0.0",
    supported_interfaces=[
        AgentInterface(url="http://127.0.0.1:9001/rpc", protocol_binding="JSONRPC", protocol_version="1.0")
    ],
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="serve", name="Serve", description="Serves a hot drink", tags=["drinks"])],
)
handler = DefaultRequestHandler(Barista(), InMemoryTaskStore(), card)
app = Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc")])
