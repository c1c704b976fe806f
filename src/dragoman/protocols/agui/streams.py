"""Event streams of the endpoint: what the records of a session become on the wire.

The id of a frame is `SEQ-PIECES-N`: the event of the log, the number of pieces after it, and the event's ordinal within
that record. So ids depend on the log alone, are equal in every replay, and grow along the thread. A stream ends with a
terminal event, because clients take a stream without one for a complete answer.
Source: specification of AG-UI, B.4, B.9.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from dragoman.core.events import LoggedEvent, RunStarted
from dragoman.core.refusals import InvalidCursor, SessionNotFound, ShuttingDown, StoreUnavailable, Unauthenticated
from dragoman.core.stream import Cursor, Piece, Record, cursor_of
from dragoman.protocols.agui import events as agui_events
from dragoman.protocols.agui.content import Message
from dragoman.protocols.agui.downgrade import ClientVersion, downgrade_events
from dragoman.protocols.agui.messages import fit_newest_messages
from dragoman.protocols.agui.request_mapping import REPLACES_ANSWER
from dragoman.protocols.agui.translate import Translator, text_content
from dragoman.protocols.kit.frames import KEEP_ALIVE, encode_json
from dragoman.protocols.kit.sse import fixed_stream

END_ERRORS: dict[type[Exception], tuple[str, str]] = {
    SessionNotFound: ("thread_deleted", "The thread was deleted"),
    ShuttingDown: ("shutting_down", "The server is restarting; the run continues when it is back"),
    StoreUnavailable: ("unavailable", "The server cannot read its store now; the run continues"),
    Unauthenticated: ("unauthorized", "The API key or token is no longer valid; the run continues"),
}
"""What ends a stream before its run: the code and message of its RUN_ERROR."""
INTERNAL_ERROR = ("internal", "The server failed")
_POSITION = re.compile(r"([0-9]{1,15})-([0-9]{1,15})-([0-9]{1,9})")


class Position(NamedTuple):
    """A place in a thread's stream: the first `event_count` events of the record at `cursor` were seen."""

    cursor: Cursor
    event_count: int


def parse_position(text: str) -> Position:
    """Read the id of a frame. Raises InvalidCursor."""
    match = _POSITION.fullmatch(text)
    if match is None:
        raise InvalidCursor("Last-Event-ID must be the id of an event of this thread")
    return Position(Cursor(int(match[1]), int(match[2])), int(match[3]))


def encode_frame(event: agui_events.Event) -> bytes:
    """Encode an event that has no position in the log."""
    return b"data: %b\n\n" % encode_json(event)


def complete_stream(events: Iterable[agui_events.Event]) -> Response:
    """A stream of events that are all known."""
    return fixed_stream(b"".join(map(encode_frame, events)))


class RunEncoder:
    """The frames of one run, up to its end.

    Args:
        translator: turns the records of the run into events.
        client_version: the version of the client.
        question: the client's history up to the user's last message. It replaces what the client shows, if the run is
            a new answer to that message and the client still shows the failed one.
    """

    keep_alive = KEEP_ALIVE

    def __init__(self, translator: Translator, client_version: ClientVersion, question: Sequence[Message] = ()) -> None:
        self._translator = translator
        self._client_version: ClientVersion = client_version
        self._question = question

    @property
    def is_over(self) -> bool:
        """Whether the last frame ended the run."""
        return self._translator.is_over

    def feed(self, record: Record) -> bytes:
        """The frames of a record."""
        if self._client_version == "1.0" and not self._question:
            return _encode_record(record, self._translator)
        events = self._translator.feed(record)
        if not events:
            return b""
        if self._question and isinstance(record, LoggedEvent) and isinstance(record.event, RunStarted):
            events += self._restored_question(record.event)
        if self._client_version != "1.0":
            events = downgrade_events(events, self._client_version)
        return _encode_frames(record, events)

    def _restored_question(self, started: RunStarted) -> list[agui_events.Event]:
        """The snapshot that removes a failed answer from the client; the log is not needed for it."""
        question, self._question = self._question, ()
        if not started.metadata.protocol.get(REPLACES_ANSWER) or len(fit_newest_messages(question)) < len(question):
            return []
        return [agui_events.MessagesSnapshot(messages=tuple(question))]

    def close(self, error: Exception) -> bytes:
        """The frame that ends the stream before its run."""
        return _end_frame(error)


class ThreadEncoder:
    """The frames of all runs of a thread, one run after the other, with what the application sent.

    It begins before the thread's first record, or before the run that `after` is in; nothing up to it is sent.
    """

    keep_alive = KEEP_ALIVE
    is_over = False

    def __init__(self, thread_id: str, after: Position | None) -> None:
        self._thread_id = thread_id
        self._after = after
        self._translator = Translator(None, thread_id=thread_id, shows_input=True)

    def feed(self, record: Record) -> bytes:
        """The frames of a record."""
        if self._translator.is_over:
            self._translator = Translator(None, thread_id=self._thread_id, shows_input=True)
        if self._after is None or (cursor := cursor_of(record)) > self._after.cursor:
            return _encode_record(record, self._translator)
        events = self._translator.feed(record)
        return _encode_frames(record, events, self._after.event_count + 1) if cursor == self._after.cursor else b""

    def close(self, error: Exception) -> bytes:
        """Nothing: the run is not over, and the client continues after its last id, unless it may no longer read."""
        return _end_frame(error) if isinstance(error, Unauthenticated) else b""


def _end_frame(error: Exception) -> bytes:
    code, message = END_ERRORS.get(type(error), INTERNAL_ERROR)
    return encode_frame(agui_events.RunError(message=message, code=code))


def _encode_record(record: Record, translator: Translator) -> bytes:
    """The frames of a record."""
    if type(record) is Piece and translator.extends_text(record):
        return _newest_frame.of(record)
    return _encode_frames(record, translator.feed(record))


class _NewestFrame:
    """The newest frame of a piece of text. The readers of a session need it one after the other."""

    __slots__ = ("_frame", "_piece")

    def __init__(self) -> None:
        self._piece: Piece | None = None
        self._frame = b""

    def of(self, piece: Piece) -> bytes:
        """The frame of a piece that continues a text."""
        if self._piece is not piece:
            data = encode_json(text_content(piece), piece.text)
            self._frame = b"id: %d-%d-1\ndata: %b\n\n" % (piece.after, piece.place, data)
            self._piece = piece
        return self._frame


_newest_frame = _NewestFrame()


def _encode_frames(record: Record, events: Sequence[agui_events.Event], first: int = 1) -> bytes:
    """The frames of a record's events from the `first` one on."""
    if not events:
        return b""
    seq, pieces = cursor_of(record)
    if len(events) == first == 1:
        return _encode_frame(seq, pieces, 1, events[0])
    shown = enumerate(events[first - 1 :], first)
    return b"".join([_encode_frame(seq, pieces, ordinal, event) for ordinal, event in shown])


def _encode_frame(seq: int, pieces: int, ordinal: int, event: agui_events.Event) -> bytes:
    return b"id: %d-%d-%d\ndata: %b\n\n" % (seq, pieces, ordinal, encode_json(event))


def reopen_events(events: Iterable[agui_events.Event]) -> list[agui_events.Event]:
    """What these events of a run leave open, for a client that has all finished messages.

    Each open text, reasoning or step is opened again by its START events and one CONTENT with the text so far. Active
    sub-agents come first.
    """
    agents: dict[str, agui_events.Event] = {}
    opened: dict[str, list[agui_events.Event]] = {}
    contents: dict[str, agui_events.TextMessageContent | agui_events.ReasoningMessageContent] = {}
    texts: dict[str, list[str]] = {}
    for event in events:
        match event:
            case agui_events.SubagentStarted(subagent_run_id=key):
                agents[key] = event
            case agui_events.SubagentFinished(subagent_run_id=key) | agui_events.SubagentError(subagent_run_id=key):
                agents.pop(key, None)
            case agui_events.TextMessageStart(message_id=key) | agui_events.ReasoningStart(message_id=key):
                opened[key] = [event]
            case agui_events.ReasoningMessageStart(message_id=key):
                opened[key].append(event)
            case agui_events.TextMessageContent(message_id=key) | agui_events.ReasoningMessageContent(message_id=key):
                texts.setdefault(key, []).append(event.delta)
                contents[key] = event
            case agui_events.TextMessageEnd(message_id=key) | agui_events.ReasoningEnd(message_id=key):
                opened.pop(key, None)
            case agui_events.StepStarted(step_name=name):
                opened[f"step:{name}"] = [event]
            case agui_events.StepFinished(step_name=name):
                opened.pop(f"step:{name}", None)
    reopened = list(agents.values())
    for key, starts in opened.items():
        reopened += starts
        if key in contents:
            reopened.append(msgspec.structs.replace(contents[key], delta="".join(texts[key])))
    return reopened
