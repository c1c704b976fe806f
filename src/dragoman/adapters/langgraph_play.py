"""One run of a graph: its stream becomes the log's messages and calls, and its tools ask the log before they run.

Words are streamed as they come. A message is complete when the task that made it has ended: its end and its calls are
in one commit with the writes of that task (`RunSaver`), so the log and the graph agree about it after any crash.
"""

import asyncio
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from itertools import accumulate, chain
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages import ToolMessage as LangChainResult
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.utils.utils import LC_ID_PREFIX
from langgraph.checkpoint.base import CheckpointMetadata
from langgraph.constants import START, TASKS
from langgraph.prebuilt import ToolNode

from dragoman.adapters.langgraph_calls import Calls, Rules
from dragoman.adapters.langgraph_messages import images_of, messages_in, texts_of, usage_of
from dragoman.adapters.langgraph_saver import Keeper, Saver
from dragoman.core.agent import Run
from dragoman.core.content import AssistantMessage, Data, Message, Usage

CURRENT: ContextVar["Player"] = ContextVar("dragoman_langgraph_run")
"""The run whose graph is executed; LangGraph carries it into its tasks and threads."""


INTERNAL_CALL = "lc_internal_call"
"""In the metadata of model calls that middleware makes for itself, as for a summary."""
PULL_PATH = "~__pregel_pull, "
"""Before the node's name in the path of a task that an edge started."""


class RunSaver(Saver):
    """The saver of all runs: each writes to its own session."""

    def __init__(self, nodes: Mapping[str, Any]) -> None:
        super().__init__(_keeper)
        self._nodes = nodes
        """The nodes of the root graph."""

    def must_be_durable(self, namespace: str, values: Mapping[str, Any], changed: Container[str]) -> bool:
        """Whether the next superstep has a node that may have effects.

        Only a tool node has none before the calls of its tools have been marked as started, durably.
        """
        triggered = {
            name
            for name, node in self._nodes.items()
            if any(channel in changed and channel in values for channel in node.triggers)
        }
        triggered |= {send.node for send in values.get(TASKS, ())}
        return bool(namespace) or not all(
            name == START or isinstance(self._nodes[name].bound, ToolNode) for name in triggered
        )

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task, in one commit with the messages in them."""
        player = CURRENT.get()
        speaks = player.speaks_in(config["configurable"].get("checkpoint_ns", ""), task_id, task_path)
        async with player.lock:
            await player.take([message for _, value in writes for message in messages_in(value)], speaks=speaks)
            await super().aput_writes(config, writes, task_id, task_path)

    def metadata_to_store(self, config: RunnableConfig, metadata: CheckpointMetadata) -> CheckpointMetadata:
        """A checkpoint's metadata without the session's options, because some of them are secret."""
        options = CURRENT.get().run.options
        without: RunnableConfig = {
            "metadata": _without(config.get("metadata"), options),
            "configurable": _without(config.get("configurable"), options),
        }
        return super().metadata_to_store(without, metadata)


def _keeper(_: str | None) -> Keeper:
    return CURRENT.get().run


class Player:
    """One played run."""

    def __init__(self, run: Run, rules: Rules, turn: Sequence[Message]) -> None:
        self.run = run
        self.lock = asyncio.Lock()
        """Held while messages are completed, so that steps do not mix."""
        self.known: set[str] = set()
        """The ids of LangChain's messages that are in the log or in the state already."""
        self.last_text = ""
        """The words of the newest message."""
        self._rules = rules
        self.calls = Calls(run, rules, turn)
        self._open: str | None = None
        """The LangChain message whose words are streamed now."""
        self._open_call: str | None = None
        """LangChain's id of the model call that makes the open message, if its chunks have that id."""
        self._task = ""
        self._spoken: list[str] = []
        self._chunks: list[AIMessageChunk] = []
        """Those chunks of the open message that have more than words."""
        self._buffered: dict[str, list[tuple[AIMessageChunk, str]]] = {}
        """Chunks of messages that are spoken while another one is open."""
        self._deferred: list[tuple[AIMessage, bool]] = []
        """Messages that were complete while another one was open, and whether their nodes speak."""
        self._tool_tasks: set[str] = set()
        """The namespaces of tasks that run tools."""
        self._pushed: dict[str, str] = {}
        """The nodes of tasks whose paths do not name them."""
        self._unsaid = Usage()
        """The tokens of the model calls since the last step."""
        self._stage: str | None = None
        self.known |= langchain_ids(turn)

    # --- the stream -----------------------------------------------------------------------------------------------

    async def handle(self, part: Any) -> None:  # noqa: ANN401  # one of LangGraph's typed dicts
        """Take the next part of the graph's stream."""
        match part["type"]:
            case "messages":
                message, metadata = part["data"]
                if INTERNAL_CALL in metadata:
                    self._unsaid += usage_of(message) or Usage()
                    return
                is_chunk = isinstance(message, AIMessageChunk) and message.id
                if (
                    is_chunk
                    and self._speaks(metadata.get("langgraph_node", ""), part["ns"])
                    and self._hear(message, metadata.get("langgraph_checkpoint_ns", ""))
                ):
                    await self.run.drain()
            case "tasks":
                await self._on_task(part["ns"], part["data"])
            case "updates":
                async with self.lock:  # those of tasks whose writes an earlier server stored
                    for node, update in part["data"].items():
                        await self.take(list(messages_in(update)), speaks=self._speaks(node, part["ns"]))
            case "custom":
                data = part["data"]
                self.run.add(Data(data if isinstance(data, dict) else {"value": data}))

    def speaks_in(self, namespace: str, task_id: str, path: str) -> bool:
        """Whether the words of a task are the answer."""
        own = path.removeprefix(PULL_PATH) if path.startswith(PULL_PATH) else self._pushed.get(task_id, "")
        return self._speaks(own, namespace.split("|"))

    def _speaks(self, own: str, namespace: Sequence[str]) -> bool:
        """Whether a node's words are the answer. Those of a graph in a tool are not, unless `speaks` names it.

        Args:
            own: the node.
            namespace: of its graph: the tasks around it.
        """
        paths = accumulate(namespace, lambda outer, inner: f"{outer}|{inner}")
        tool = next((each for each, path in zip(namespace, paths, strict=True) if path in self._tool_tasks), None)
        speaks = self._rules.speaks
        if speaks is None:
            return tool is None
        nodes = {own, *_nodes(namespace)} if tool is None else _nodes([tool])
        return not nodes.isdisjoint(speaks)

    def _hear(self, chunk: AIMessageChunk, task: str) -> bool:
        """Say a chunk's words, if its message is the open one. Returns whether the run should be drained."""
        if chunk.id in self.known:
            return False
        if self._open is None:
            self._open, self._task, self._spoken, self._chunks = chunk.id, task, [], []
            self._open_call = None
        elif self._goes_on(chunk, task):
            self._open_call = chunk.id
        elif self._open != chunk.id:
            self._buffered.setdefault(chunk.id or "", []).append((chunk, task))
            return False
        if chunk.tool_call_chunks or chunk.usage_metadata:
            self._chunks.append(chunk)
        must_drain = False
        for kind, text in texts_of(chunk):
            if kind == "text":
                self._spoken.append(text)
                must_drain = self.run.emit(text)
            else:
                must_drain = self.run.think(text)
        return must_drain

    def _goes_on(self, chunk: AIMessageChunk, task: str) -> bool:
        """Whether a chunk continues the open message under LangChain's id of the model call: providers that give
        their messages an id, such as OpenAI's Responses, send it with the first chunk only.
        """
        if self._open_call is not None or self._open is None:
            return self._open_call == chunk.id
        return (
            task == self._task
            and not self._spoken
            and _is_call_id(chunk.id)
            and not _is_call_id(self._open)
            and not any(task == each for _, each in self._all_buffered())
        )

    def _all_buffered(self) -> Iterator[tuple[AIMessageChunk, str]]:
        return chain.from_iterable(self._buffered.values())

    async def _on_task(self, namespace: Sequence[str], data: dict[str, Any]) -> None:
        if "result" not in data:
            self._pushed[data["id"]] = data["name"]
            stage = "/".join([*(each.partition(":")[0] for each in namespace), data["name"]])
            if stage != self._stage:
                self._stage = stage
                self.run.stage(stage)
            return
        if self._open is None or not self._task.endswith(data["id"]):
            return
        if self._open not in {message.id for message in messages_in(data["result"])}:
            async with self.lock:  # its words are not in the state: nothing else will end the message
                await self.end_open()

    async def end(self) -> None:
        """Complete what is open, and leave the stage."""
        async with self.lock:
            await self.end_open()
        if self._stage is not None:
            self.run.stage(None)

    # --- messages -------------------------------------------------------------------------------------------------

    async def take(self, messages: Sequence[BaseMessage], *, speaks: bool) -> None:
        """Complete messages that a task wrote, and settle the calls whose results it wrote, locked."""
        for message in messages:
            if isinstance(message, AIMessage) and message.id not in self.known:
                if message.id is None:
                    message.id = str(uuid4())  # as the graph's reducer would do next
                if self._open not in (None, message.id) and not self._repeats_open(message):
                    self._deferred.append((message, speaks))
                else:
                    await self._complete(message, speaks=speaks)
        for message in messages:
            if isinstance(message, LangChainResult):
                await self.calls.settle(message.tool_call_id, message)

    async def add_unstreamed(self, messages: Sequence[BaseMessage]) -> None:
        """Say what only a graph's state has: messages that its nodes returned as tuples or dicts."""
        async with self.lock:
            for message in messages:
                if isinstance(message, AIMessage) and not (message.text and message.text == self.last_text):
                    await self.take([message], speaks=self._rules.speaks is None)

    def _repeats_open(self, message: AIMessage) -> bool:
        """Whether a node returned the words of the open message in a message of its own."""
        return bool(self._spoken) and not message.tool_calls and "".join(self._spoken) == message.text

    async def _complete(self, message: AIMessage, *, speaks: bool) -> None:
        """End the open message, or say one whole if its node speaks; its calls are noted in any case."""
        if message.id is not None:
            if message.id in self.known:
                return
            self.known.add(message.id)
            self._buffered.pop(message.id, None)
        is_open = self._open is not None
        spoken, whole = "".join(self._spoken), "".join(text for kind, text in texts_of(message) if kind == "text")
        self._forget_call(whole)
        self.known.add(self._open or "")
        self._open, self._spoken = None, []
        says = is_open
        if is_open:
            if whole.startswith(spoken) and len(whole) > len(spoken):
                self.run.emit(whole[len(spoken) :])
        elif speaks:
            for kind, text in texts_of(message):
                says = True
                self.run.emit(text) if kind == "text" else self.run.think(text)
        for image in images_of(message) if is_open or speaks else ():
            says = True
            self.run.add(image)
        for call in message.tool_calls:
            self.calls.record(call["name"], call["args"], call["id"])
        for invalid in message.invalid_tool_calls:
            self.calls.record(invalid["name"] or "", {"_raw": invalid["args"]}, invalid["id"])
        self._unsaid += usage_of(message) or Usage()
        if says or message.tool_calls or message.invalid_tool_calls:
            self.last_text = whole if says else self.last_text
            model = message.response_metadata.get("model_name")
            usage, self._unsaid = self._unsaid, Usage()
            await self.run.end_step(
                usage=None if usage == Usage() else usage,
                model=model if isinstance(model, str) else None,
                private={"id": message.id},
            )
        await self._next_speaker()

    def _forget_call(self, whole: str) -> None:
        """Drop the chunks of the message that is complete now, if they came under LangChain's id of the call."""
        call = self._open_call
        if call is None:
            texts = {
                key: "".join(text for chunk, _ in chunks for kind, text in texts_of(chunk) if kind == "text")
                for key, chunks in self._buffered.items()
                if _is_call_id(key)
            }
            call = next((key for key, text in texts.items() if text and text == whole), None)
        if call is not None:
            self.known.add(call)
            self._buffered.pop(call, None)
        self._open_call = None

    async def _next_speaker(self) -> None:
        deferred, self._deferred = self._deferred, []
        for message, speaks in deferred:
            await self._complete(message, speaks=speaks)
        if self._buffered and self._open is None:
            first = next(iter(self._buffered))
            for chunk, task in self._buffered.pop(first):
                self._hear(chunk, task)

    async def end_open(self) -> None:
        """End the message whose words are streamed, as far as its chunks tell."""
        while self._open is not None:
            first, *rest = self._chunks or [AIMessageChunk(content="")]
            whole = add_ai_message_chunks(first, *rest) if rest else first
            message = AIMessage(
                content="".join(self._spoken),
                id=self._open,
                tool_calls=whole.tool_calls,
                usage_metadata=whole.usage_metadata,
                response_metadata=whole.response_metadata,
            )
            await self._complete(message, speaks=True)

    # --- tools ----------------------------------------------------------------------------------------------------

    async def run_tool(self, tool: BaseTool, call: Any, config: RunnableConfig | None, options: Any) -> Any:  # noqa: ANN401  # as LangChain passes them
        """Run a tool of a tool node, unless the log has its result."""
        self._tool_tasks.add((config or {}).get("configurable", {}).get("checkpoint_ns", ""))
        async with self.lock:
            if not self.calls.is_announced(call["id"]):  # its node calls the tool itself
                await self.end_open()
                names = tool.tool_call_schema.model_fields if hasattr(tool.tool_call_schema, "model_fields") else ()
                visible = {name: value for name, value in call["args"].items() if name in names}
                self.calls.record(tool.name, visible, call["id"])
                await self.run.end_step()
        return await self.calls.run_tool(tool, call, config, options)


def _is_call_id(message_id: str | None) -> bool:
    return message_id is not None and message_id.startswith(LC_ID_PREFIX)


def langchain_ids(messages: Iterable[Message]) -> set[str]:
    """The ids under which a graph knows messages of the log: its own, or ours if it was given them."""
    answers = [each for each in messages if isinstance(each, AssistantMessage)]
    own = {each.private["id"] for each in answers if isinstance(each.private, dict) and "id" in each.private}
    return own.union(each.id for each in answers)


def _without(values: Mapping[str, Any] | None, names: Container[str]) -> dict[str, Any]:
    return {name: value for name, value in (values or {}).items() if name not in names}


def _nodes(namespace: Iterable[str]) -> set[str]:
    """The nodes around a graph, from its namespace."""
    return {each.partition(":")[0] for each in namespace}
