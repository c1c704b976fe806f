"""Compare what was streamed with what is stored, as the history endpoint returns it and as it is in the database.

The database is read as plain rows and JSON, without Dragoman's own code, so that a fault there cannot go unnoticed.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from bench import wire
from bench.load import Client, Session, close, run_concurrently

Turns = list[tuple[str, str]]


class Mismatch(Exception):
    """The streamed and the stored text differ. The figures of the row are invalid."""


class _Block(msgspec.Struct):
    type: str
    text: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Block]


class _History(msgspec.Struct):
    history: dict[str, list[_Message]]


class _StoredMessage(msgspec.Struct):
    type: str
    content: str | list[_Block]


class _Payload(msgspec.Struct):
    """The members of an event that the comparison needs."""

    message: _StoredMessage | None = None
    block: _Block | None = None


_HISTORY = msgspec.json.Decoder(_History)
_PAYLOAD = msgspec.json.Decoder(_Payload)


async def history(client: Client, sessions: Sequence[Session], *, seeds: int = 0) -> None:
    """Read the full history of each session and compare it with what was streamed.

    Raises:
        Mismatch: a user message or an answer is missing, altered, duplicated or misplaced.
    """
    connections = await client.connect(min(8, len(sessions)))

    async def read(first: int) -> None:
        for session in sessions[first :: len(connections)]:
            answer = await connections[first].exchange(
                client.request("GET", f"/sessions/{session.id}/history?type=full")
            )
            messages = _HISTORY.decode(wire.body(answer)).history["full"]
            _compare("history", session, _turns(messages[seeds:]))

    await run_concurrently(read(first) for first in range(len(connections)))
    close(connections)


def database(file: Path, sessions: Sequence[Session], *, seeds: int = 0) -> None:
    """Read the log of each session from the database file and compare it with what was streamed.

    Raises:
        Mismatch: as for `history`, or the log has a gap.
    """
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:
        rows(
            connection.execute(
                "SELECT session_id, seq, type, payload FROM events ORDER BY rowid"
            ),  # in the order of writing
            sessions,
            seeds=seeds,
        )
    finally:
        connection.close()


def rows(events: Iterable[tuple[str, int, str, str]], sessions: Sequence[Session], *, seeds: int = 0) -> None:
    """Compare what was streamed with rows of the log (session, seq, type, payload), which are ordered in each session.

    Raises:
        Mismatch: as for `database`.
    """
    stored: dict[str, list[_Message]] = {session.id: [] for session in sessions}
    last = dict.fromkeys(stored, 0)
    for session_id, seq, kind, payload in events:
        if session_id not in stored:
            continue
        if seq != last[session_id] + 1:
            raise Mismatch(f"database: the log of session {session_id} has a gap")
        last[session_id] = seq
        if kind == "message_added":
            message = _PAYLOAD.decode(payload).message
            assert message is not None
            stored[session_id].append(_Message(message.type, message.content))
        elif kind == "block_closed":
            block = _PAYLOAD.decode(payload).block
            assert block is not None
            stored[session_id].append(_Message("assistant", [block]))
    for session in sessions:
        _compare("database", session, _turns(stored[session.id][seeds:]))


def _turns(messages: Sequence[_Message]) -> Turns:
    """Each user message with the whole answer to it."""
    turns: Turns = []
    for message in messages:
        content = message.content
        text = content if isinstance(content, str) else "".join(block.text for block in content)
        if message.role == "user":
            turns.append((text, ""))
        elif message.role == "assistant" and turns:
            turns[-1] = (turns[-1][0], turns[-1][1] + text)
    return turns


def _compare(where: str, session: Session, stored: Turns) -> None:
    if stored == session.turns:
        return
    if len(stored) != len(session.turns):
        raise Mismatch(f"{where}: {len(session.turns)} turns streamed, {len(stored)} stored ({session.id})")
    for index, (streamed, found) in enumerate(zip(session.turns, stored, strict=True)):
        if streamed != found:
            raise Mismatch(
                f"{where}: turn {index} of {session.id}: streamed {_excerpt(streamed)}, stored {_excerpt(found)}"
            )


def _excerpt(turn: tuple[str, str]) -> Mapping[str, object]:
    question, answer = turn
    return {"question": question[:60], "characters": len(answer), "end": answer[-40:]}
