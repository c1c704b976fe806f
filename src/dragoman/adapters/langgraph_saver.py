"""LangGraph's checkpoints, kept with the session: `BaseCheckpointSaver` over `Run.keep` and `Run.kept`.

    lg/THREAD/NAMESPACE/c/CHECKPOINT             a checkpoint without its values
    lg/THREAD/NAMESPACE/b/CHANNEL/VERSION        one channel's value: a checkpoint writes those that changed
    lg/THREAD/NAMESPACE/w/CHECKPOINT/TASK/INDEX  one write of a task

A checkpoint is durable when `aput` returns, in one commit with the events of the log before it, unless
`must_be_durable` says that it may wait. The writes of a node become durable after `aput_writes` has returned, but never
later than what is written after them, such as the checkpoint.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Container, Coroutine, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)

from dragoman.core.refusals import StoreUnavailable

T = TypeVar("T")
ROOT_KEY = "lg/"
PAGE_SIZE = 500
TASK_RESULT = "__return__"
"""The channel of a `@task`'s result. No checkpoint follows it: its entrypoint continues at once."""
MAX_PART_CHARS = 100
"""A longer part of a key is replaced by its digest."""


class Keeper(Protocol):
    """The values of one session; `core.agent.Run` is one."""

    async def keep(self, writes: Mapping[str, bytes | None], *, durable: bool = True) -> None:
        """Keep values by key. They are durable when this returns; with `durable=False`, no later than those of the next
        call. `kept` returns them at once.
        """

    async def kept(self, below: str = "", *, after: str | None = None, limit: int = 1000) -> Mapping[str, bytes]:
        """The values whose keys begin with `below`."""


class StaleWriter(Exception):
    """The run has lost its session to another server: nothing was written."""

    is_stale_write_owner_error = True


class StoredValue(msgspec.Struct, frozen=True, array_like=True):
    """A value in the form in which LangGraph's serializer writes it."""

    kind: str
    data: bytes


class StoredCheckpoint(msgspec.Struct, frozen=True, array_like=True):
    """A checkpoint with what identifies it, because keys may hold digests."""

    thread: str
    namespace: str
    id: str
    parent: str | None
    checkpoint: StoredValue
    metadata: StoredValue


class StoredWrite(msgspec.Struct, frozen=True, array_like=True):
    """A write of a task."""

    task: str
    index: int
    channel: str
    value: StoredValue
    path: str


_CHECKPOINT = msgspec.msgpack.Decoder(StoredCheckpoint)
_WRITE = msgspec.msgpack.Decoder(StoredWrite)
_VALUE = msgspec.msgpack.Decoder(StoredValue)
_encode = msgspec.msgpack.Encoder().encode


class Saver(BaseCheckpointSaver[str]):
    """A checkpointer for any graph.

    Args:
        of: where the values of a thread are kept; None asks for those of all threads.
    """

    def __init__(self, of: Callable[[str | None], Keeper]) -> None:
        super().__init__()
        self._of = of
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- reading --------------------------------------------------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the newest of its thread and namespace."""
        self._loop = asyncio.get_running_loop()
        thread, namespace = _place(config)
        keeper, checkpoint_id = self._of(thread), get_checkpoint_id(config)
        below = _key(thread, namespace, "c", checkpoint_id or "")
        found = [each async for each in _checkpoints(keeper, below)]
        if checkpoint_id:
            found = [each for each in found if each.id == checkpoint_id]
        return await self._tuple(keeper, max(found, key=lambda each: each.id)) if found else None

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  # the framework's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """The checkpoints of a thread, or of all threads, newest first in each namespace."""
        self._loop = asyncio.get_running_loop()
        wanted: dict[str, Any] = {} if config is None else config["configurable"]
        thread, namespace = wanted.get("thread_id"), wanted.get("checkpoint_ns")
        below = ROOT_KEY if thread is None else _key(thread) if namespace is None else _key(thread, namespace, "c", "")
        end = get_checkpoint_id(before) if before else None
        keeper = self._of(thread)
        found = [each async for each in _checkpoints(keeper, below)]
        found.sort(key=lambda each: each.id, reverse=True)
        count = 0
        for stored in sorted(found, key=lambda each: (each.thread, each.namespace)):
            if wanted.get("checkpoint_id") not in (None, "", stored.id) or (end and stored.id >= end):
                continue
            metadata = self._load(stored.metadata)
            if filter and any(metadata.get(name) != value for name, value in filter.items()):
                continue
            if limit is not None and count >= limit:
                return
            count += 1
            yield await self._tuple(keeper, stored)

    async def _tuple(self, keeper: Keeper, stored: StoredCheckpoint) -> CheckpointTuple:
        thread, namespace = stored.thread, stored.namespace
        checkpoint: Checkpoint = self._load(stored.checkpoint)
        versions = checkpoint["channel_versions"].items()
        keys = [(channel, _key(thread, namespace, "b", channel, str(version))) for channel, version in versions]
        blobs, writes = await asyncio.gather(
            asyncio.gather(*(keeper.kept(key, limit=1) for _, key in keys)),
            _all(keeper, _key(thread, namespace, "w", stored.id, "")),
        )
        values = {}
        for (channel, key), blob in zip(keys, blobs, strict=True):
            if key in blob:
                values[channel] = self._load(_VALUE.decode(blob[key]))
        pending = sorted(
            map(_WRITE.decode, writes.values()), key=lambda each: writes_sort_key(each.path, each.task, each.index)
        )
        return CheckpointTuple(
            config=_config(thread, namespace, stored.id),
            checkpoint={**checkpoint, "channel_values": values},
            metadata=self._load(stored.metadata),
            parent_config=None if stored.parent is None else _config(thread, namespace, stored.parent),
            pending_writes=[(each.task, each.channel, self._load(each.value)) for each in pending],
        )

    # --- writing --------------------------------------------------------------------------------------------------

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint with the values of the channels that changed."""
        self._loop = asyncio.get_running_loop()
        thread, namespace = _place(config)
        values = checkpoint["channel_values"]
        bare = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        stored = StoredCheckpoint(
            thread,
            namespace,
            checkpoint["id"],
            get_checkpoint_id(config),
            self._dump(bare),
            self._dump(self.metadata_to_store(config, metadata)),
        )
        writes: dict[str, bytes | None] = {
            _key(thread, namespace, "b", channel, str(version)): _encode(self._dump(values[channel]))
            for channel, version in new_versions.items()
            if channel in values
        }
        writes[_key(thread, namespace, "c", stored.id)] = _encode(stored)
        await _keep(self._of(thread), writes, durable=self.must_be_durable(namespace, values, new_versions))
        return _config(thread, namespace, stored.id)

    def must_be_durable(self, namespace: str, values: Mapping[str, Any], changed: Container[str]) -> bool:
        """Whether a checkpoint has to be durable before its graph continues.

        Args:
            namespace: of its graph; empty for the root.
            values: the values of its channels.
            changed: the channels that the step before it changed.
        """
        return True

    def metadata_to_store(self, config: RunnableConfig, metadata: CheckpointMetadata) -> CheckpointMetadata:
        """A checkpoint's metadata, with the texts and numbers of its config, as all savers store it."""
        return get_checkpoint_metadata(config, metadata)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task."""
        self._loop = asyncio.get_running_loop()
        thread, namespace = _place(config)
        checkpoint_id = config["configurable"]["checkpoint_id"]
        kept: dict[str, bytes] = {}
        for place, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, place)
            write = StoredWrite(task_id, index, channel, self._dump(value), task_path)
            kept[_key(thread, namespace, "w", checkpoint_id, task_id, str(index))] = _encode(write)
        is_result = any(channel == TASK_RESULT for channel, _ in writes)
        await _keep(self._of(thread), kept, durable=is_result)

    # --- deleting and copying -------------------------------------------------------------------------------------

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints and writes of a thread."""
        keeper = self._of(thread_id)
        await _remove(keeper, await _all(keeper, _key(thread_id)))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that LangGraph's runs of these ids made, and their writes."""
        keeper = self._of(None)
        found = [each async for each in _checkpoints(keeper, ROOT_KEY)]
        await self._drop(keeper, [each for each in found if self._load(each.metadata).get("run_id") in run_ids])

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread."""
        source, target = self._of(source_thread_id), self._of(target_thread_id)
        old, new = _key(source_thread_id), _key(target_thread_id)
        for key, value in (await _all(source, old)).items():
            moved = value
            if key.removeprefix(old).split("/")[1] == "c":
                moved = _encode(msgspec.structs.replace(_CHECKPOINT.decode(value), thread=target_thread_id))
            await target.keep({new + key.removeprefix(old): moved})

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all checkpoints of threads, or all but the newest of each namespace and what that one needs."""
        for thread_id in thread_ids:
            if strategy == "delete":
                await self.adelete_thread(thread_id)
                continue
            await self.drop_between(thread_id, set())

    async def drop_between(self, thread_id: str, ids: set[str], *, is_finished: bool = False) -> None:
        """Delete the checkpoints of a thread except those named, the newest of each namespace, and what these need.

        Args:
            thread_id: the thread.
            ids: the checkpoints to keep.
            is_finished: the graph has ended, so that the namespaces of single tasks are not needed any more.
        """
        keeper = self._of(thread_id)
        found = [each async for each in _checkpoints(keeper, _key(thread_id))]
        newest: dict[str, str] = {}
        for each in found:
            if is_finished and ":" in each.namespace:
                continue
            newest[each.namespace] = max(each.id, newest.get(each.namespace, ""))
        await self._retain(keeper, found, ids | set(newest.values()))

    async def _retain(self, keeper: Keeper, found: Sequence[StoredCheckpoint], ids: set[str]) -> None:
        """Delete those of the checkpoints that are neither named nor needed to read the named ones.

        A channel that stores only what each step adds is read by walking to the nearest ancestor with its value, so
        such ancestors stay, with their writes.
        """
        by_id = {(each.namespace, each.id): each for each in found}
        needed: set[tuple[str, str]] = set()
        for each in found:
            if each.id not in ids:
                continue
            needed.add((each.namespace, each.id))
            missing = await self._channels_without_value(keeper, each)
            parent = by_id.get((each.namespace, each.parent or ""))
            while missing and parent is not None:
                needed.add((parent.namespace, parent.id))
                missing &= await self._channels_without_value(keeper, parent)
                parent = by_id.get((parent.namespace, parent.parent or ""))
        await self._drop(keeper, [each for each in found if (each.namespace, each.id) not in needed])

    async def _channels_without_value(self, keeper: Keeper, stored: StoredCheckpoint) -> set[str]:
        """The channels that have a version in a checkpoint, and no value: those of which it may have a part only."""
        metadata = self._load(stored.metadata)
        counters = metadata.get("counters_since_delta_snapshot") or {}
        found = await self._tuple(keeper, stored) if counters else None
        return set() if found is None else set(counters) - set(found.checkpoint["channel_values"])

    async def _drop(self, keeper: Keeper, dropped: Sequence[StoredCheckpoint]) -> None:
        """Delete checkpoints, their writes, and the values that no other checkpoint of their namespace refers to."""
        if not dropped:
            return
        gone = {(each.thread, each.namespace, each.id) for each in dropped}
        keys: list[str] = []
        for thread, namespace in {(each.thread, each.namespace) for each in dropped}:
            used: set[str] = set()
            async for each in _checkpoints(keeper, _key(thread, namespace, "c", "")):
                if (thread, namespace, each.id) not in gone:
                    used |= self._blob_keys(each)
            own = [each for each in dropped if (each.thread, each.namespace) == (thread, namespace)]
            keys += [key for each in own for key in self._blob_keys(each) - used]
        for each in dropped:
            keys += await _all(keeper, _key(each.thread, each.namespace, "w", each.id, ""))
            keys.append(_key(each.thread, each.namespace, "c", each.id))
        await _remove(keeper, keys)

    def _blob_keys(self, stored: StoredCheckpoint) -> set[str]:
        versions = self._load(stored.checkpoint)["channel_versions"].items()
        return {_key(stored.thread, stored.namespace, "b", channel, str(version)) for channel, version in versions}

    # --- from threads ---------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Do `aget_tuple` from another thread."""
        return self._wait(self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  # the framework's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Do `alist` from another thread."""

        async def read() -> Sequence[CheckpointTuple]:
            return [each async for each in self.alist(config, filter=filter, before=before, limit=limit)]

        yield from self._wait(read())

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Do `aput` from another thread."""
        return self._wait(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Do `aput_writes` from another thread."""
        self._wait(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """Do `adelete_thread` from another thread."""
        self._wait(self.adelete_thread(thread_id))

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's event loop. Raises RuntimeError on that loop itself."""
        try:
            is_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_loop = False
        if is_loop or self._loop is None:
            coroutine.close()
            raise RuntimeError("the saver's blocking methods are for threads: await aget_tuple, aput, … instead")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    # --- values ---------------------------------------------------------------------------------------------------

    def get_next_version(self, current: str | None, channel: None) -> str:
        """A version that no other branch of the thread has: a value is stored under its channel and version."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:016}.{random.getrandbits(64):016x}"  # no secret

    def _dump(self, value: object) -> StoredValue:
        return StoredValue(*self.serde.dumps_typed(value))

    def _load(self, stored: StoredValue) -> Any:  # noqa: ANN401  # any value of a graph
        return self.serde.loads_typed((stored.kind, stored.data))


def _place(config: RunnableConfig) -> tuple[str, str]:
    configurable = config["configurable"]
    return configurable["thread_id"], configurable.get("checkpoint_ns", "")


def _config(thread: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}


def _key(thread: str, *parts: str) -> str:
    return ROOT_KEY + "/".join(map(_escape, (thread, *(parts or ("",)))))


def _escape(part: str) -> str:
    escaped = quote(part, safe="")
    return escaped if len(escaped) <= MAX_PART_CHARS else f"{escaped[:35]}~{sha256(part.encode()).hexdigest()}"


async def _all(keeper: Keeper, below: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    after: str | None = None
    while page := await keeper.kept(below, after=after, limit=PAGE_SIZE):
        found |= page
        if len(page) < PAGE_SIZE:
            break
        after = max(page)
    return found


async def _checkpoints(keeper: Keeper, below: str) -> AsyncIterator[StoredCheckpoint]:
    """The checkpoints below a key, which may be that of a whole thread or of all."""
    for key, value in (await _all(keeper, below)).items():
        if key.split("/")[3] == "c":
            yield _CHECKPOINT.decode(value)


async def _keep(keeper: Keeper, writes: Mapping[str, bytes | None], *, durable: bool = True) -> None:
    try:
        await keeper.keep(writes, durable=durable)
    except StoreUnavailable as error:
        raise StaleWriter("this server has lost the session") from error


async def _remove(keeper: Keeper, keys: Iterable[str]) -> None:
    gone: dict[str, bytes | None] = dict.fromkeys(keys)
    if gone:
        await _keep(keeper, gone, durable=False)
