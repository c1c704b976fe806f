"""Graphs of LangGraph and LangChain's agents: the wrapper, and how the loader finds them."""

import copy
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Unpack, get_type_hints

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import is_invalid_resume
from langgraph.graph import StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from langgraph.types import Command, StateSnapshot, StreamMode
from pydantic import ValidationError
from pydantic.errors import PydanticUserError

from dragoman.adapters.base import FrameworkAgent, WrapperOptions, count
from dragoman.adapters.frameworks import LANGGRAPH, Framework, Refused, needs_argument, own_runtime
from dragoman.adapters.langgraph_interrupts import (
    ask_again,
    may_continue,
    resume_values,
    wait_for_answers,
    was_asked,
)
from dragoman.adapters.langgraph_messages import is_json_object, output_text, to_human, to_langchain
from dragoman.adapters.langgraph_place import Place, Places
from dragoman.adapters.langgraph_play import CURRENT, Player, RunSaver, langchain_ids
from dragoman.adapters.model_errors import end_of_run
from dragoman.adapters.run_info import RunInfo, value_for
from dragoman.core.agent import AgentError, Run
from dragoman.core.answers import STOPPED_RESULT
from dragoman.core.content import Json, Message, UserMessage, text_of
from dragoman.core.events import StopReason
from dragoman.core.ids import SessionId
from dragoman.core.tools import SecretOption

DEFAULT_NAME = "LangGraph"
"""The name of every graph that has none."""
STREAM_MODES: Sequence[StreamMode] = ["messages", "updates", "custom", "tasks"]
MESSAGES, STRUCTURED = "messages", "structured_response"
MESSAGE_LIST = "[]"
"""In place of a field's name: the input is a list of messages."""
CONTEXT_MESSAGES = 1000
"""How many messages a workflow gets that takes a list of them and keeps none."""

Graph = Pregel[Any, Any, Any, Any]
Builder = StateGraph[Any, Any, Any, Any]


class Continue(NamedTuple):
    """What the graph is given next; None lets it continue where it is."""

    given: Any


Left = Literal["finished", "waits", "declined"]
"""Why the graph gets nothing: it has ended, it waits for the user, or the user does not let it continue."""


def as_agent(value: object, name: str) -> FrameworkAgent | None:
    """The wrapper for a graph, compiled or not; None if the value is none.

    Raises:
        Refused: it is a graph that cannot be served.
    """
    if type(value).__name__ == "RemoteGraph":
        raise own_runtime(name)
    return LangGraphAgent(value, name=name) if isinstance(value, Pregel | StateGraph) else None


def _compiled(graph: Graph | Builder, name: str | None) -> Graph:
    if isinstance(graph, Pregel):
        return graph
    try:
        return graph.compile()
    except ValueError as error:
        raise Refused(f"{name or 'the graph'} does not compile: {error}") from error


class LangGraphAgent(FrameworkAgent):
    """A graph, such as one of `create_agent`.

    Args:
        graph: the graph, compiled or not.
        context: the graph's `context`, or a function (sync or async) of the `RunInfo` that returns it.
        input: the graph's input for a user's message, if it is neither `messages` nor one required text field.
        output: the answer in a graph's output; by default its only text field, or all of it as JSON.
        speaks: the nodes whose words and pictures are the answer; by default all. Calls of other nodes are shown too.
        checkpointer: `own` keeps the graph's own checkpointer, which knows nothing of crashes and branches.
        keep_checkpoints: `all` also keeps the checkpoints inside finished turns.
        wrapper_options: see `WrapperOptions`.
    """

    framework: ClassVar[Framework] = LANGGRAPH

    def __init__(
        self,
        graph: Graph | Builder,
        *,
        context: Any = None,  # noqa: ANN401  # the graph's own type
        input: Callable[[UserMessage, RunInfo], Any | Awaitable[Any]] | None = None,  # noqa: A002  # as LangGraph says
        output: Callable[[Any], Json] | None = None,
        speaks: Iterable[str] | None = None,
        checkpointer: Literal["dragoman", "own"] = "dragoman",
        keep_checkpoints: Literal["turns", "all"] = "turns",
        **wrapper_options: Unpack[WrapperOptions],
    ) -> None:
        graph = _compiled(graph, wrapper_options.get("name"))
        own_name = None if graph.get_name() == DEFAULT_NAME else graph.get_name()
        chosen: WrapperOptions = {"client_tools": False, **wrapper_options}
        super().__init__(
            graph,
            own_name=own_name,
            own_description=None,
            own=("context", "input", "output", "speaks", "checkpointer", "keep_checkpoints"),
            **chosen,
        )
        self.speaks = None if speaks is None else frozenset(speaks)
        self._context = context
        self._input = input
        self._output = output
        self._keeps_all = keep_checkpoints == "all"
        self._own_saver = graph.checkpointer if isinstance(graph.checkpointer, BaseCheckpointSaver) else None
        if checkpointer != "own":
            self._own_saver = None
        elif self._own_saver is None:
            raise Refused(f"{self.name} has no checkpointer of its own: compile(checkpointer=…)")
        is_replaced = self._own_saver is None and isinstance(graph.checkpointer, BaseCheckpointSaver)
        self._replaced = type(graph.checkpointer).__name__ if is_replaced else None
        self._is_stateless = graph.checkpointer is None
        self._tools: dict[str, BaseTool] = {}
        self._graph = _guarded(graph, self._tools)
        self._saver = RunSaver(self._graph.nodes)
        if self._own_saver is None:
            self._graph.checkpointer = self._saver
        self._field = self._input_field(graph)
        if context is None and graph.context_schema is not None:
            if needed := _schema(graph, "context").get("required"):
                raise needs_argument(self.name, f"needs a context with {', '.join(needed)}", LangGraphAgent, "context")
            self._context = {}  # a context of defaults, which nodes find in place of None

    def _input_field(self, graph: Graph) -> str | None:
        """The input's field for the user's words; None if the input is made by `input`, or is not an object."""
        if self._input is not None:
            return None
        schema = _schema(graph, "input")
        fields = schema.get("properties", {})
        if MESSAGES in fields and fields[MESSAGES].get("items", {}).get("type") != "object":  # of a type of its own
            return MESSAGES
        required = schema.get("required") or list(fields)
        if len(required) == 1 and fields[required[0]].get("type") == "string":
            return str(required[0])
        if schema.get("type") == "string":
            return None
        if schema.get("type") == "array":
            return MESSAGE_LIST
        taken = f"{{{', '.join(fields)}}}" if fields else f"input of the type {schema.get('type', 'any')}"
        raise needs_argument(self.name, f"takes {taken}", LangGraphAgent, "input")

    def parts(self) -> Iterable[object]:
        """The graph, what it was built from, and its subgraphs."""
        graph = self.wrapped
        assert isinstance(graph, Pregel)
        subgraphs = [each for _, each in graph.get_subgraphs(recurse=True)]
        return [
            part for each in (graph, *subgraphs) for part in (each, getattr(each, "builder", None)) if part is not None
        ]

    def details(self) -> Iterable[str]:
        """The tools, and whose checkpoints are kept where."""
        if self._tools:
            yield count(len(self._tools), "tool")
        if self._replaced is not None:
            yield f"brings its own {self._replaced}: its checkpoints are kept in Dragoman's store"

    def guards(self, tool: str) -> bool:
        """Whether the tool is one of a tool node, whose calls ask the run before they begin."""
        return tool in self._tools

    async def forget(self, session_id: SessionId) -> None:
        """Delete the session's thread from the graph's own checkpointer."""
        if self._own_saver is not None:
            await self._own_saver.adelete_thread(session_id)

    # --- a run ----------------------------------------------------------------------------------------------------

    async def play(self, run: Run) -> StopReason | None:
        """Run the graph from where the session is."""
        turn = await run.turn()
        if not turn:
            return None
        player = Player(run, self, turn)
        await player.calls.restore()
        token = CURRENT.set(player)
        try:
            return await self._play(player, turn)
        except AgentError:
            raise
        except Exception as error:  # noqa: BLE001  # of the framework, a model or the author: one table says which
            await player.calls.settle_failed()
            return end_of_run(error)
        finally:
            CURRENT.reset(token)

    async def _play(self, player: Player, turn: Sequence[Message]) -> StopReason | None:
        """Give the graph the turn's input, or what a run of the turn that ended before left to do, until it ends."""
        info = RunInfo.of(player.run)
        places = Places(player.run, self._own_saver or self._saver)
        place, unknown = await places.find(turn)
        config: RunnableConfig = {
            "configurable": {**self._configurable(info), "thread_id": place.thread, "user_id": info.user}
        }
        state = await self._graph.aget_state(config)
        structured = _structured(state)
        if await places.head(place.thread) == place.head:
            given = await self._begin(player, turn, unknown, place, config, state, info)
        else:
            player.known |= _known_ids(state, turn)
            left = await self._take_up(player, state)
            if left == "finished":
                await player.add_unstreamed(_messages(state))
                return await self._finish(player, places, place, state, structured)
            if not isinstance(left, Continue):
                return "end_turn" if left == "declined" else None
            given = left.given
        context = await value_for(self._context, info)
        while True:
            try:
                state = await self._execute(player, given, config, context)
            except ValidationError as error:
                if not is_invalid_resume(error):
                    raise
                await player.end()
                await ask_again(player.run, player.calls, await self._graph.aget_state(config), error)
                return None
            if not (state.interrupts or state.next):
                return await self._finish(player, places, place, state, structured)
            await wait_for_answers(player.run, player.calls, state)
            answers = await resume_values(player.run, player.calls, state) if state.interrupts else None
            if answers is None:
                return None
            given = _resumed(answers)  # the session trusts all that was asked about

    async def _begin(
        self,
        player: Player,
        turn: Sequence[Message],
        unknown: Sequence[Message],
        place: Place,
        config: RunnableConfig,
        state: StateSnapshot,
        info: RunInfo,
    ) -> Any:  # noqa: ANN401  # the graph's own type
        """The input of a graph that does not know the turn yet. A branch begins at the checkpoint it forks off."""
        before = unknown if self._field != MESSAGE_LIST else await self._before_workflow(player, turn, unknown)
        if place.fork is not None:
            config["configurable"]["checkpoint_id"] = place.fork
            state = await self._graph.aget_state(config)
        player.known |= _message_ids(state)
        return await self._given(turn, before, state, info)

    async def _take_up(self, player: Player, state: StateSnapshot) -> Continue | Left:
        """What is left to do for a graph that has the turn's input already: after a crash, or after an answer."""
        if state.interrupts:
            answers = await resume_values(player.run, player.calls, state)
            if answers is not None:
                return Continue(_resumed(answers))
            await wait_for_answers(player.run, player.calls, state)
            return "waits"
        if not state.tasks:  # `next` leaves out tasks whose writes are stored, but in no checkpoint yet
            return "finished"
        if not was_asked(player.calls, state):
            return Continue(None)
        match await may_continue(player.calls, state):
            case None:
                return "waits"
            case is_allowed:
                return Continue(None) if is_allowed else "declined"

    async def _execute(self, player: Player, given: Any, config: RunnableConfig, context: Any) -> StateSnapshot:  # noqa: ANN401  # the graph's own types
        """Run the graph until it ends or waits, and say what its nodes say. Returns the state it is in then."""
        stream = self._graph.astream(
            given,
            config,
            context=context,
            stream_mode=STREAM_MODES,
            subgraphs=True,
            durability="sync",
            version="v2",
        )
        async for part in stream:
            await player.handle(part)
        await player.end()
        config["configurable"].pop("checkpoint_id", None)
        state = await self._graph.aget_state(config)
        await player.add_unstreamed(_messages(state))
        return state

    def _configurable(self, info: RunInfo) -> Mapping[str, str]:
        """The session's options for nodes that read their config. Other savers than ours store what they find there,
        so with one of those the secrets are only in the graph's context.
        """
        if self._own_saver is None:
            return info.options
        shown = {option.name for option in self.spec.options if not isinstance(option, SecretOption)}
        return {name: value for name, value in info.options.items() if name in shown}

    async def _before_workflow(
        self, player: Player, turn: Sequence[Message], unknown: Sequence[Message]
    ) -> Sequence[Message]:
        """The messages that a workflow gets before those of the turn: all that are shown, if it keeps none itself."""
        recent = await player.run.context(CONTEXT_MESSAGES)
        shown = [each for each in recent if each.loop == player.run.loop and each not in turn]
        player.known |= langchain_ids(shown)  # it returns them beside the new ones
        return shown if self._is_stateless else unknown

    async def _given(
        self, turn: Sequence[Message], before: Iterable[Message], state: StateSnapshot, info: RunInfo
    ) -> Any:  # noqa: ANN401
        """The graph's input for the turn."""
        asked = [each for each in turn if isinstance(each, UserMessage)]
        if self._input is not None:
            made = self._input(asked[-1], info)
            return await made if isinstance(made, Awaitable) else made
        if self._field == MESSAGES:
            return {MESSAGES: [*_closing(state), *to_langchain(before), *map(to_human, asked)]}
        if self._field == MESSAGE_LIST:
            return [*to_langchain(before), *map(to_human, asked)]
        text = "\n".join(text_of(each.content) for each in asked)
        return text if self._field is None else {self._field: text}

    async def _finish(
        self, player: Player, places: Places, place: Place, state: StateSnapshot, structured: str | None
    ) -> StopReason | None:
        """Say the structured output, or the output of a graph that has no messages, and note where the turn ended."""
        text = _structured(state)
        if text == structured or is_json_object(player.last_text):  # the model's own words are the structured output
            text = None
        if self._output is not None:
            made = self._output(state.values)
            text = made if isinstance(made, str) else output_text(made)
        elif self._field != MESSAGES and not player.last_text:
            text = self._output_text(state.values)
        elif text is None and (newest := _messages(state)[-1:]) and self._is_answer(newest[0]):
            text = str(newest[0].text)
        if text is not None and text != player.last_text:
            player.run.emit(text)
            await player.run.end_step(private={"id": place.message})
        await places.finish(place.thread, keeps_all=self._keeps_all)
        return None

    def _is_answer(self, message: BaseMessage) -> bool:
        """Whether a message is the result of a tool that answers in place of the model."""
        tool = self._tools.get(message.name or "") if isinstance(message, ToolMessage) else None
        return tool is not None and tool.return_direct

    def _output_text(self, values: Any) -> str:  # noqa: ANN401  # any graph's state
        last = values[-1] if isinstance(values, list) and values else values
        if isinstance(last, BaseMessage):
            return str(last.text)
        if not isinstance(values, Mapping):
            return values if isinstance(values, str) else output_text(values)
        names = _schema(self._graph, "output").get("properties", {})
        shown = {name: value for name, value in values.items() if name in names} or dict(values)
        if len(shown) > 1:
            shown.pop(self._field or "", None)
        texts = [value for value in shown.values() if isinstance(value, str)]
        return texts[0] if len(texts) == len(shown) == 1 else output_text(shown)


def _resumed(answers: Mapping[str, Any]) -> Command[Any] | None:
    """The input that resumes a graph with the answers to its interrupts, if it needs any."""
    return Command(resume=answers) if answers else None


def _guarded(graph: Graph, tools: dict[str, BaseTool]) -> Graph:
    """A copy of a graph whose tool nodes ask the run before a tool runs. `tools` gets their tools."""
    guarded = copy.copy(graph)
    guarded.nodes = {}
    for name, node in graph.nodes.items():
        bound: Any = node.bound
        replaced: Any
        if isinstance(bound, ToolNode):
            replaced = copy.copy(bound)
            replaced._tools_by_name = {each: _guard(tool) for each, tool in bound.tools_by_name.items()}
            replaced.func, replaced.afunc = replaced._func, replaced._afunc  # those of the copy
            tools |= bound.tools_by_name
        elif isinstance(bound, Pregel):
            replaced = _guarded(bound, tools)
        else:
            guarded.nodes[name] = node
            continue
        guarded.nodes[name] = node.copy({"bound": replaced})
    return guarded


def _guard(tool: BaseTool) -> BaseTool:
    """A copy of a tool that asks the run before it runs."""
    guarded = tool.model_copy()

    async def ainvoke(call: Any, config: Any = None, **options: Any) -> Any:  # noqa: ANN401  # as LangChain passes them
        player = CURRENT.get(None)
        if player is None or not (isinstance(call, dict) and call.get("type") == "tool_call" and call.get("id")):
            return await tool.ainvoke(call, config, **options)
        return await player.run_tool(tool, call, config, options)

    object.__setattr__(guarded, "ainvoke", ainvoke)  # a pydantic model takes no other attributes
    return guarded


def _schema(graph: Graph, kind: Literal["input", "output", "context"]) -> Mapping[str, Any]:
    """The JSON Schema of a graph's input, output or context; only names and texts for types that have none."""
    try:
        return getattr(graph, f"get_{kind}_jsonschema")() or {}
    except PydanticUserError:  # a `typing.TypedDict` before Python 3.12
        types = get_type_hints(getattr(getattr(graph, "builder", None), f"{kind}_schema", dict))
        return {"properties": {name: {"type": "string"} if hint is str else {} for name, hint in types.items()}}


def _messages(state: StateSnapshot) -> list[BaseMessage]:
    values = state.values.get(MESSAGES, ()) if isinstance(state.values, Mapping) else ()
    return [each for each in values if isinstance(each, BaseMessage)]


def _message_ids(state: StateSnapshot) -> set[str]:
    return {each.id for each in _messages(state) if each.id}


def _known_ids(state: StateSnapshot, turn: Sequence[Message]) -> set[str]:
    """The ids of the messages in a state up to the turn's own: later ones are shown if the log has not got them."""
    asked = {each.id for each in turn}
    known: set[str] = set()
    for message in _messages(state):
        if message.id in asked:
            break
        known.add(message.id or "")
    return known


def _closing(state: StateSnapshot) -> list[BaseMessage]:
    """Results for the calls that a stopped run left open: a model refuses a call without one."""
    messages = _messages(state)
    done = {each.tool_call_id for each in messages if isinstance(each, ToolMessage)}
    return [
        ToolMessage(STOPPED_RESULT, tool_call_id=call["id"], name=call["name"], status="error")
        for message in messages
        for call in getattr(message, "tool_calls", ())
        if call["id"] not in done
    ]


def _structured(state: StateSnapshot) -> str | None:
    value = state.values.get(STRUCTURED) if isinstance(state.values, Mapping) else None
    return None if value is None else output_text(value)
