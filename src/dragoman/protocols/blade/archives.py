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

ARCHIVE_FORMAT = "dragoman-session"
ARCHIVE_VERSION = 1
MAX_ARCHIVE_BYTES = 50 * 1024 * 1024
MAX_UNPACKED_BYTES = 500 * 1024 * 1024
MAX_TURNS_BYTES = 128 * 1024 * 1024
"""Of the turns, which have to be in memory."""
MAX_METADATA_BYTES = 1024 * 1024
"""Of the manifest, and of the session."""
MAX_ENTRIES = 1000
MAX_MESSAGES = 20_000
INTERRUPTED_CALL_RESULT = "Tool call interrupted: the session was exported while it ran"

T = TypeVar("T")
_UNSAFE_ENTRY_NAME = re.compile(r"(^|/)\.\.(/|$)|^/|\\|^[A-Za-z]:|\0")
_CENTRAL_DIRECTORY_SIGNATURE = b"PK\1\2"
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


def write_archive(
    session: JsonObject, turns: Sequence[object], nodes: Sequence[object], exported_at: datetime
) -> bytes:
    """An archive.

    Args:
        session: the session, without what is private.
        turns: its turns as in its messages.
        nodes: its entries as in its history.
        at: the time of the export.
    """
    files = {
        "manifest.json": Manifest(format=ARCHIVE_FORMAT, format_version=ARCHIVE_VERSION, exported_at=exported_at),
        "session.json": session,
        "turns.json": turns,
        "history.json": {"nodes": nodes},
    }
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        for name, value in files.items():
            archive.writestr(ZipInfo(name, exported_at.timetuple()[:6]), msgspec.json.encode(value), ZIP_DEFLATED)
    return packed.getvalue()


def read_archive(packed: bytes) -> Archive:
    """Read an archive.

    Raises:
        Invalid: it is none, or none of ours, or its names lead outside.
        LimitExceeded: it is too large unpacked.
    """
    if packed.count(_CENTRAL_DIRECTORY_SIGNATURE) > MAX_ENTRIES:  # so that not even their list is read
        raise Invalid(f"must have at most {MAX_ENTRIES} entries, each once", path="file")
    try:
        with ZipFile(BytesIO(packed)) as archive:
            entries = _validate_entries(archive)
            manifest = _read_entry(archive, entries, "manifest.json", Manifest, MAX_METADATA_BYTES)
            if (manifest.format, manifest.format_version) != (ARCHIVE_FORMAT, ARCHIVE_VERSION):
                raise Invalid(f"must be an archive of format {ARCHIVE_FORMAT} {ARCHIVE_VERSION}", path="file")
            session = _read_entry(archive, entries, "session.json", ArchivedSession, MAX_METADATA_BYTES)
            turns = _read_entry(archive, entries, "turns.json", tuple[ArchivedTurn, ...], MAX_TURNS_BYTES)
            return Archive(manifest, session, turns)
    except (BadZipFile, ZlibError, EOFError, NotImplementedError, RuntimeError, ValueError, OSError) as error:
        # what the library raises on bytes that are no archive, are cut off, encrypted, or packed in another way
        raise Invalid("is no archive that can be read", path="file") from error


def _validate_entries(archive: ZipFile) -> dict[str, ZipInfo]:
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES or len({each.filename for each in entries}) < len(entries):
        raise Invalid(f"must have at most {MAX_ENTRIES} entries, each once", path="file")
    for each in entries:
        if _UNSAFE_ENTRY_NAME.search(each.orig_filename) or _UNSAFE_ENTRY_NAME.search(each.filename):
            raise Invalid(f"has an entry outside of the archive: {each.filename[:80]!r}", path="file")
    if sum(each.file_size for each in entries) > MAX_UNPACKED_BYTES:
        raise LimitExceeded("the archive, unpacked,", MAX_UNPACKED_BYTES, path="file")
    return {each.filename: each for each in entries}


def _read_entry(archive: ZipFile, entries: dict[str, ZipInfo], name: str, kind: type[T], max_bytes: int) -> T:
    entry = entries.get(name)
    if entry is None:
        raise Invalid(f"has no {name}", path="file")
    if entry.file_size > max_bytes:
        raise LimitExceeded(f"{name} in the archive", max_bytes, path="file")
    with archive.open(entry) as file:
        content = file.read(max_bytes + 1)
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
    found = _MessageConverter(new_id).messages(turns)
    if len(found) > MAX_MESSAGES:
        raise LimitExceeded("the number of messages in the archive", MAX_MESSAGES, path="file")
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
    return (call for call in turn.tool_calls if not chat.is_permission_id(call.id))


class _MessageConverter:
    """Turns on their way to become messages."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._messages: list[Message] = []
        self._call_ids: dict[str, CallId] = {}
        self._pending_results: dict[LoopId, list[tuple[ArchivedCall, CallId]]] = {}
        """The results of each loop's newest step that were not told yet."""

    def messages(self, turns: Sequence[ArchivedTurn]) -> list[Message]:
        for turn in turns:
            loop = self._loop_id(turn.loop_id)
            if turn.role == "assistant":
                self._append_results(loop)
                self._append_assistant(turn, loop)
            elif turn.kind == "message":
                self._append_all_results()
                self._append_user_or_system(turn)
        self._append_all_results()
        return self._messages

    def _loop_id(self, shown: str) -> LoopId:
        if shown == ROOT:
            return ROOT
        call_id = self._call_ids.get(shown.removeprefix("fork:"))
        if call_id is None:
            raise Invalid(f"has a turn of a loop that no call began: {shown[:80]!r}", path="file")
        return fork_loop(call_id)

    def _append_results(self, loop: LoopId) -> None:
        """Tell the results of a loop's newest step, those of the sub-agents below it first."""
        for call, call_id in self._pending_results.pop(loop, ()):
            self._append_results(fork_loop(call_id))
            self._messages.append(self._tool_message(call, call_id, loop))

    def _append_all_results(self) -> None:
        self._append_results(ROOT)
        while self._pending_results:  # sub-agents that were at work when their call had ended
            self._append_results(next(iter(self._pending_results)))

    def _tool_message(self, call: ArchivedCall, call_id: CallId, loop: LoopId) -> ToolMessage:
        value = INTERRUPTED_CALL_RESULT if call.status in ("pending", "awaiting_answer") else call.result
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

    def _append_assistant(self, turn: ArchivedTurn, loop: LoopId) -> None:
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
                    call_id = self._call_ids[name] = CallId(self._new_id())
                    arguments = block.content if isinstance(block.content, dict) else {}
                    blocks.append(Call(call_id=call_id, name=call.tool_name, input=arguments))
                    owed.append((call, call_id))
        if blocks:
            message = AssistantMessage(id=MessageId(self._new_id()), content=tuple(blocks), loop=loop, model=turn.model)
            self._messages.append(message)
            self._pending_results[loop] = owed

    def _append_user_or_system(self, turn: ArchivedTurn) -> None:
        text = "\n".join(_block_text(block) for block in turn.blocks if _block_text(block))
        if not text:
            return
        if turn.role == "user":
            self._messages.append(UserMessage(id=MessageId(self._new_id()), content=text))
        else:
            self._messages.append(SystemMessage(id=MessageId(self._new_id()), content=text, origin="notice"))


def _block_text(block: ArchivedBlock) -> str:
    """What a user's or the system's block says. An answer to a question stands in the result of its call."""
    is_text = block.type in ("text", "system_notification")
    return block.content if is_text and isinstance(block.content, str) else ""
