"""Sessions as ZIP archives: written, read from untrusted sources, and converted to messages. Pure.

    manifest.json  session.json  turns.json  history.json

The turns and the history are written as Blade shows them; of each turn, an import reads what an `ArchivedTurn` has.
Nothing is unpacked to disk. Unsafe names and declared sizes are refused before anything is decompressed, and reading
stops at the limits, whatever the archive declares. An imported conversation opens no calls and answers none.
Source: specification of Blade, section 5.5.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from io import BytesIO
from typing import Annotated, Any, Literal, TypeVar
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo
from zlib import error as ZlibError  # noqa: N812  # as all errors are named

import msgspec

from dragoman.core.answers import result_content
from dragoman.core.content import (
    AssistantMessage,
    Block,
    Call,
    JsonObject,
    Message,
    MessageStatus,
    SystemMessage,
    Text,
    Thinking,
    ToolMessage,
    UserMessage,
    is_too_deep,
)
from dragoman.core.ids import ROOT, CallId, LoopId, MessageId, fork_loop
from dragoman.core.refusals import Invalid, LimitExceeded

ARCHIVE_FORMAT = "dragoman-session"
ARCHIVE_VERSION = 1
MAX_ARCHIVE_BYTES = 50 * 1024 * 1024
MAX_UNPACKED_BYTES = 500 * 1024 * 1024
MAX_TURNS_BYTES = 128 * 1024 * 1024
"""The limit for the turns, which have to fit in memory."""
MAX_METADATA_BYTES = 1024 * 1024
"""The limit for the manifest and for the session."""
MAX_ENTRIES = 1000
MAX_MESSAGES = 20_000
MAX_TURNS = 2 * MAX_MESSAGES
MAX_PARTS = 100_000
"""The limit for the blocks and the calls of all turns together."""
MAX_CONTAINERS, MAX_VALUES = 1_000_000, 10_000_000
"""The limits for JSON's brackets and commas, also those in texts: nothing else bounds the memory for small values, of
which an archive of a few kilobytes may have a hundred million."""
MAX_LOOP_DEPTH = 100
"""The limit for sub-agents inside one another."""
_QUESTION_ABOUT_CALL = re.compile(r"(perm|ask[1-9][0-9]*)_")
"""Begins the ids of calls that are questions about another call: whether it may run, or what it asks itself."""
INTERRUPTED_CALL_RESULT = "Tool call interrupted: the session was exported while it ran"

T = TypeVar("T")
_UNSAFE_ENTRY_NAME = re.compile(r"(^|/)\.\.(/|$)|^/|\\|^[A-Za-z]:|\0")
_CENTRAL_DIRECTORY_SIGNATURE = b"PK\1\2"
"""The beginning of each entry in an archive's directory."""


# --- contents of an archive -------------------------------------------------------------------------------------------


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The format of an archive."""

    format: str
    format_version: int
    exported_at: datetime


class ArchivedSession(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a session that an import uses."""

    intent: str = ""
    created_at: datetime | None = None
    solution_id: str | None = None
    model: str | None = None


class ArchivedBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A content block of any type."""

    type: str
    content: Any = None
    tool_call_id: str | None = None
    attachment: Any = None


class ArchivedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call."""

    id: str
    tool_name: str
    status: str = "done"
    result: Any = None


class ArchivedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a turn that an import uses."""

    loop_id: str = ROOT
    kind: str = "message"
    role: Literal["user", "assistant", "system"]
    status: str = "completed"
    blocks: tuple[ArchivedBlock, ...] = ()
    tool_calls: tuple[ArchivedCall, ...] = ()
    model: Annotated[str, msgspec.Meta(max_length=256)] | None = None
    cut: bool = False
    """Whether the step was cut off by a crash, and repeated."""


class Archive(msgspec.Struct, frozen=True):
    """The contents of an archive."""

    manifest: Manifest
    session: ArchivedSession
    turns: tuple[ArchivedTurn, ...]


# --- writing and reading ----------------------------------------------------------------------------------------------


def write_archive(
    session: JsonObject, turns: Sequence[object], nodes: Sequence[object], exported_at: datetime
) -> bytes:
    """Write an archive.

    Args:
        session: the session, without private fields.
        turns: its turns, as in its messages.
        nodes: its entries, as in its history.
        exported_at: the time of the export.
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
        Invalid: it is not an archive of ours, or contains unsafe names.
        LimitExceeded: it is too large when unpacked.
    """
    if packed.count(_CENTRAL_DIRECTORY_SIGNATURE) > MAX_ENTRIES:  # so the directory is not even read
        raise Invalid(f"must have at most {MAX_ENTRIES} entries, each once", path="file")
    try:
        with ZipFile(BytesIO(packed)) as archive:
            entries = _validate_entries(archive)
            manifest = _read_entry(archive, entries, "manifest.json", Manifest, MAX_METADATA_BYTES)
            if (manifest.format, manifest.format_version) != (ARCHIVE_FORMAT, ARCHIVE_VERSION):
                raise Invalid(f"must be an archive of format {ARCHIVE_FORMAT} {ARCHIVE_VERSION}", path="file")
            session = _read_entry(archive, entries, "session.json", ArchivedSession, MAX_METADATA_BYTES)
            turns = _read_entry(archive, entries, "turns.json", tuple[ArchivedTurn, ...], MAX_TURNS_BYTES)
            if len(turns) > MAX_TURNS:
                raise LimitExceeded("the number of turns in the archive", MAX_TURNS, path="file")
            if sum(len(turn.blocks) + len(turn.tool_calls) for turn in turns) > MAX_PARTS:
                raise LimitExceeded("the number of blocks and calls in the archive", MAX_PARTS, path="file")
            return Archive(manifest, session, turns)
    except (BadZipFile, ZlibError, EOFError, OverflowError, RuntimeError, ValueError, OSError) as error:
        # The library raises these for bytes that are not an archive, are truncated, encrypted, or name huge offsets.
        raise Invalid("is not a readable archive", path="file") from error


def _validate_entries(archive: ZipFile) -> dict[str, ZipInfo]:
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES or len({each.filename for each in entries}) < len(entries):
        raise Invalid(f"must have at most {MAX_ENTRIES} entries, each once", path="file")
    for each in entries:
        if _UNSAFE_ENTRY_NAME.search(each.orig_filename) or _UNSAFE_ENTRY_NAME.search(each.filename):
            raise Invalid(f"has an entry outside the archive: {each.filename[:80]!r}", path="file")
        if each.compress_type not in (ZIP_STORED, ZIP_DEFLATED):  # other libraries, with their own errors and memory
            raise Invalid(f"has an entry in an unusual compression: {each.filename[:80]!r}", path="file")
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
    if content.count(b"{") + content.count(b"[") > MAX_CONTAINERS or content.count(b",") > MAX_VALUES:
        raise LimitExceeded(f"the number of values of {name} in the archive", MAX_CONTAINERS, path="file")
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"has an unreadable {name}", path="file") from error


# --- turns as messages ------------------------------------------------------------------------------------------------


def messages_of(turns: Sequence[ArchivedTurn], new_id: Callable[[], str]) -> list[Message]:
    """The conversation as the history of a new session, with new ids.

    A call's result comes before the next turn of its loop, so that a sub-agent's messages are inside its call.

    Raises:
        Invalid: the turns are inconsistent.
        LimitExceeded: there are too many messages.
    """
    messages = _MessageConverter(new_id).messages(turns)
    if len(messages) > MAX_MESSAGES:
        raise LimitExceeded("the number of messages in the archive", MAX_MESSAGES, path="file")
    return messages


def warnings_of(turns: Sequence[ArchivedTurn]) -> list[str]:
    """Sentences about what an import leaves out."""
    left_out = {
        "summaries of earlier turns are not imported": any(turn.kind == "compaction" for turn in turns),
        "plans and changes of mode are not imported": any(
            block.type in ("plan_status", "mode_change") for turn in turns for block in turn.blocks
        ),
        "images and files are not imported: each is named in its message": any(
            block.attachment for turn in turns for block in turn.blocks
        ),
        "calls that were still running are imported as interrupted": any(
            call.status in ("pending", "awaiting_answer") for turn in turns for call in _calls_of(turn)
        ),
    }
    return [warning for warning, applies in left_out.items() if applies]


def _calls_of(turn: ArchivedTurn) -> Iterator[ArchivedCall]:
    """The calls that the model made, without the questions about them."""
    return (call for call in turn.tool_calls if not _QUESTION_ABOUT_CALL.match(call.id))


class _MessageConverter:
    """Converts turns to messages."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._messages: list[Message] = []
        self._call_ids: dict[str, CallId] = {}
        self._depths: dict[LoopId, int] = {ROOT: 0}
        """How many sub-agents a loop is inside of, also of loops that calls might start."""
        self._pending_results: dict[LoopId, list[tuple[ArchivedCall, CallId]]] = {}
        """The results of each loop's newest step that are not appended yet."""

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

    def _loop_id(self, public_id: str) -> LoopId:
        if public_id == ROOT:
            return ROOT
        call_id = self._call_ids.get(public_id.removeprefix("fork:"))
        if call_id is None:
            raise Invalid(f"has a turn of a loop that no call started: {public_id[:80]!r}", path="file")
        loop = fork_loop(call_id)
        if self._depths[loop] > MAX_LOOP_DEPTH:
            raise LimitExceeded("the number of sub-agents inside one another", MAX_LOOP_DEPTH, path="file")
        return loop

    def _append_results(self, loop: LoopId) -> None:
        """Append the results of a loop's newest step, after those of the sub-agents below it."""
        for call, call_id in self._pending_results.pop(loop, ()):
            self._append_results(fork_loop(call_id))
            self._messages.append(self._tool_message(call, call_id, loop))

    def _append_all_results(self) -> None:
        self._append_results(ROOT)
        while self._pending_results:  # sub-agents that worked on after their call had ended
            self._append_results(next(iter(self._pending_results)))

    def _tool_message(self, call: ArchivedCall, call_id: CallId, loop: LoopId) -> ToolMessage:
        value = INTERRUPTED_CALL_RESULT if call.status in ("pending", "awaiting_answer") else call.result
        if is_too_deep(value):
            raise Invalid("has a result that is nested too deeply", path="file")
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
        results: list[tuple[ArchivedCall, CallId]] = []
        for block in turn.blocks:
            match block:
                case ArchivedBlock(type="text", content=str(text)) if text:
                    blocks.append(Text(text))
                case ArchivedBlock(type="thinking", content=str(text)) if text:
                    blocks.append(Thinking(text))
                case ArchivedBlock(type="tool_use", tool_call_id=str(name)) if name in calls:
                    call = calls.pop(name)
                    call_id = self._call_ids[name] = CallId(self._new_id())
                    self._depths[fork_loop(call_id)] = self._depths[loop] + 1
                    arguments = block.content if isinstance(block.content, dict) else {}
                    blocks.append(Call(call_id=call_id, name=call.tool_name, input=arguments))
                    results.append((call, call_id))
        if blocks:
            message = AssistantMessage(
                id=MessageId(self._new_id()),
                content=tuple(blocks),
                loop=loop,
                status=_message_status(turn),
                model=turn.model,
            )
            self._messages.append(message)
            self._pending_results[loop] = results

    def _append_user_or_system(self, turn: ArchivedTurn) -> None:
        text = "\n".join(_block_text(block) for block in turn.blocks if _block_text(block))
        if not text:
            return
        message_id = MessageId(self._new_id())
        if turn.role == "user":
            self._messages.append(UserMessage(id=message_id, content=text))
        else:
            self._messages.append(SystemMessage(id=message_id, content=text, origin="notice"))


def _block_text(block: ArchivedBlock) -> str:
    """The text of a user's or the system's block. An answer to a question is in its call's result instead."""
    is_text = block.type in ("text", "system_notification")
    return block.content if is_text and isinstance(block.content, str) else ""


def _message_status(turn: ArchivedTurn) -> MessageStatus:
    if turn.cut:
        return "cut"
    return turn.status if turn.status in ("interrupted", "failed") else "completed"  # type: ignore[return-value]
