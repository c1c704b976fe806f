"""Sessions as ZIP archives: what stands in one, and how one is read that anybody may have made. Pure.

    manifest.json  session.json  turns.json  history.json

Nothing is unpacked to a disk. An archive is looked over whole before anything of it is decompressed: names that lead
outside and sizes beyond the bounds are refused by what the archive says of itself, and what it does not keep to by how
much comes out. An imported conversation is a history that a client tells: it opens no call and answers none.
Source: specification, section 5.5.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from io import BytesIO
from typing import Any, Literal, TypeVar
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo
from zlib import error as ZlibError  # noqa: N812  # as all errors are named

import msgspec

from dragoman.core.answers import result_content
from dragoman.core.content import (
    AssistantMessage,
    Block,
    Call,
    JsonObject,
    Message,
    SystemMessage,
    Text,
    Thinking,
    ToolMessage,
    UserMessage,
    is_too_deep,
)
from dragoman.core.ids import ROOT, CallId, LoopId, MessageId, fork_loop
from dragoman.core.refusals import Invalid, LimitExceeded
from dragoman.protocols.blade.wire import chat

FORMAT = "dragoman-session"
VERSION = 1
PACKED = 50 * 1024 * 1024
UNPACKED = 500 * 1024 * 1024
TURNS_BYTES = 128 * 1024 * 1024
"""Of the turns, which have to be in memory."""
SMALL_BYTES = 1024 * 1024
"""Of the manifest, and of the session."""
ENTRIES = 1000
MESSAGES = 20_000
UNFINISHED = "Tool call interrupted: the session was exported while it ran"

T = TypeVar("T")
_OUTSIDE = re.compile(r"(^|/)\.\.(/|$)|^/|\\|^[A-Za-z]:|\0")
_ENTRY = b"PK\1\2"
"""Begins each entry in an archive's list."""


# --- what stands in an archive ----------------------------------------------------------------------------------------


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive is."""

    format: str
    format_version: int
    exported_at: datetime


class ArchivedSession(msgspec.Struct, frozen=True, kw_only=True):
    """What an import takes from a session."""

    intent: str = ""
    created_at: datetime | None = None
    solution_id: str | None = None
    model: str | None = None


class ArchivedBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A content block, of whatever type."""

    type: str
    content: Any = None
    tool_call_id: str | None = None


class ArchivedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call."""

    id: str
    tool_name: str
    status: str = "done"
    result: Any = None


class ArchivedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What an import takes from a turn."""

    loop_id: str = ROOT
    kind: str = "message"
    role: Literal["user", "assistant", "system"]
    blocks: tuple[ArchivedBlock, ...] = ()
    tool_calls: tuple[ArchivedCall, ...] = ()
    model: str | None = None


class Archive(msgspec.Struct, frozen=True):
    """An archive that was read."""

    manifest: Manifest
    session: ArchivedSession
    turns: tuple[ArchivedTurn, ...]


# --- writing and reading ----------------------------------------------------------------------------------------------


def written(session: JsonObject, turns: Sequence[object], nodes: Sequence[object], at: datetime) -> bytes:
    """An archive.

    Args:
        session: the session, without what is private.
        turns: its turns as in its messages.
        nodes: its entries as in its history.
        at: the time of the export.
    """
    files = {
        "manifest.json": Manifest(format=FORMAT, format_version=VERSION, exported_at=at),
        "session.json": session,
        "turns.json": turns,
        "history.json": {"nodes": nodes},
    }
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        for name, value in files.items():
            archive.writestr(ZipInfo(name, at.timetuple()[:6]), msgspec.json.encode(value), ZIP_DEFLATED)
    return packed.getvalue()


def read(packed: bytes) -> Archive:
    """Read an archive.

    Raises:
        Invalid: it is none, or none of ours, or its names lead outside.
        LimitExceeded: it is too large unpacked.
    """
    if packed.count(_ENTRY) > ENTRIES:  # so that not even their list is read
        raise Invalid(f"must have at most {ENTRIES} entries, each once", path="file")
    try:
        with ZipFile(BytesIO(packed)) as archive:
            entries = _looked_over(archive)
            manifest = _read(archive, entries, "manifest.json", Manifest, SMALL_BYTES)
            if (manifest.format, manifest.format_version) != (FORMAT, VERSION):
                raise Invalid(f"must be an archive of format {FORMAT} {VERSION}", path="file")
            session = _read(archive, entries, "session.json", ArchivedSession, SMALL_BYTES)
            turns = _read(archive, entries, "turns.json", tuple[ArchivedTurn, ...], TURNS_BYTES)
            return Archive(manifest, session, turns)
    except (BadZipFile, ZlibError, EOFError, NotImplementedError, RuntimeError, ValueError, OSError) as error:
        # what the library raises on bytes that are no archive, are cut off, encrypted, or packed in another way
        raise Invalid("is no archive that can be read", path="file") from error


def _looked_over(archive: ZipFile) -> dict[str, ZipInfo]:
    entries = archive.infolist()
    if len(entries) > ENTRIES or len({each.filename for each in entries}) < len(entries):
        raise Invalid(f"must have at most {ENTRIES} entries, each once", path="file")
    for each in entries:
        if _OUTSIDE.search(each.orig_filename) or _OUTSIDE.search(each.filename):
            raise Invalid(f"has an entry outside of the archive: {each.filename[:80]!r}", path="file")
    if sum(each.file_size for each in entries) > UNPACKED:
        raise LimitExceeded("the archive, unpacked,", UNPACKED, path="file")
    return {each.filename: each for each in entries}


def _read(archive: ZipFile, entries: dict[str, ZipInfo], name: str, kind: type[T], most: int) -> T:
    entry = entries.get(name)
    if entry is None:
        raise Invalid(f"has no {name}", path="file")
    if entry.file_size > most:
        raise LimitExceeded(f"{name} in the archive", most, path="file")
    with archive.open(entry) as file:
        content = file.read(most + 1)
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"has a {name} that cannot be read", path="file") from error


# --- turns as messages ------------------------------------------------------------------------------------------------


def messages_of(turns: Sequence[ArchivedTurn], new_id: Callable[[], str]) -> list[Message]:
    """The conversation as a history to begin a session with, under new ids.

    A call's result stands before the next turn of its loop, so that what a sub-agent did stands within its call.

    Raises:
        Invalid: the turns do not hold together.
        LimitExceeded: there are too many.
    """
    found = _Reading(new_id).messages(turns)
    if len(found) > MESSAGES:
        raise LimitExceeded("the number of messages in the archive", MESSAGES, path="file")
    return found


def warnings_of(turns: Sequence[ArchivedTurn]) -> list[str]:
    """What an import leaves out, in sentences."""
    left_out = {
        "summaries of earlier turns are not imported": any(turn.kind == "compaction" for turn in turns),
        "plans and changes of mode are not imported": any(
            block.type in ("plan_status", "mode_change") for turn in turns for block in turn.blocks
        ),
        "calls that were still running are imported as interrupted": any(
            call.status in ("pending", "awaiting_answer") for turn in turns for call in _calls_of(turn)
        ),
    }
    return [sentence for sentence, holds in left_out.items() if holds]


def _calls_of(turn: ArchivedTurn) -> Iterator[ArchivedCall]:
    """The calls that the model made: not the questions that stand for permissions."""
    return (call for call in turn.tool_calls if not chat.is_permission(call.id))


class _Reading:
    """Turns on their way to become messages."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._found: list[Message] = []
        self._calls: dict[str, CallId] = {}
        self._owed: dict[LoopId, list[tuple[ArchivedCall, CallId]]] = {}
        """The results of each loop's newest step that were not told yet."""

    def messages(self, turns: Sequence[ArchivedTurn]) -> list[Message]:
        for turn in turns:
            loop = self._loop(turn.loop_id)
            if turn.role == "assistant":
                self._pay(loop)
                self._assistant(turn, loop)
            elif turn.kind == "message":
                self._pay_all()
                self._other(turn)
        self._pay_all()
        return self._found

    def _loop(self, shown: str) -> LoopId:
        if shown == ROOT:
            return ROOT
        call_id = self._calls.get(shown.removeprefix("fork:"))
        if call_id is None:
            raise Invalid(f"has a turn of a loop that no call began: {shown[:80]!r}", path="file")
        return fork_loop(call_id)

    def _pay(self, loop: LoopId) -> None:
        """Tell the results of a loop's newest step, those of the sub-agents below it first."""
        for call, call_id in self._owed.pop(loop, ()):
            self._pay(fork_loop(call_id))
            self._found.append(self._result(call, call_id, loop))

    def _pay_all(self) -> None:
        self._pay(ROOT)
        while self._owed:  # sub-agents that were at work when their call had ended
            self._pay(next(iter(self._owed)))

    def _result(self, call: ArchivedCall, call_id: CallId, loop: LoopId) -> ToolMessage:
        value = UNFINISHED if call.status in ("pending", "awaiting_answer") else call.result
        if is_too_deep(value):
            raise Invalid("has a result with too many levels", path="file")
        return ToolMessage(
            id=MessageId(self._new_id()),
            call_id=call_id,
            name=call.tool_name,
            content=result_content(value),
            loop=loop,
            is_error=call.status != "done",
            raw=msgspec.UNSET if isinstance(value, str) else value,
        )

    def _assistant(self, turn: ArchivedTurn, loop: LoopId) -> None:
        calls = {call.id: call for call in _calls_of(turn)}
        blocks: list[Block] = []
        owed: list[tuple[ArchivedCall, CallId]] = []
        for block in turn.blocks:
            match block:
                case ArchivedBlock(type="text", content=str(text)) if text:
                    blocks.append(Text(text))
                case ArchivedBlock(type="thinking", content=str(text)) if text:
                    blocks.append(Thinking(text))
                case ArchivedBlock(type="tool_use", tool_call_id=str(name)) if name in calls:
                    call = calls.pop(name)
                    call_id = self._calls[name] = CallId(self._new_id())
                    arguments = block.content if isinstance(block.content, dict) else {}
                    blocks.append(Call(call_id=call_id, name=call.tool_name, input=arguments))
                    owed.append((call, call_id))
        if blocks:
            message = AssistantMessage(id=MessageId(self._new_id()), content=tuple(blocks), loop=loop, model=turn.model)
            self._found.append(message)
            self._owed[loop] = owed

    def _other(self, turn: ArchivedTurn) -> None:
        text = "\n".join(_words(block) for block in turn.blocks if _words(block))
        if not text:
            return
        if turn.role == "user":
            self._found.append(UserMessage(id=MessageId(self._new_id()), content=text))
        else:
            self._found.append(SystemMessage(id=MessageId(self._new_id()), content=text, origin="notice"))


def _words(block: ArchivedBlock) -> str:
    """What a user's or the system's block says. An answer to a question stands in the result of its call."""
    is_text = block.type in ("text", "system_notification")
    return block.content if is_text and isinstance(block.content, str) else ""
