"""Writes appends: fences, events, pieces and indexes of a whole batch in one statement.

Runs on the writer's thread, inside its transaction.
"""

from collections.abc import Iterable, Sequence

import msgspec
from psycopg import Connection

from dragoman.core.events import type_of
from dragoman.core.ids import SessionId, UserId
from dragoman.core.stream import Piece
from dragoman.ports.log import IDEMPOTENCY_RETENTION, Append, IdempotencyRecord
from dragoman.stores.checksums import event_checksum, kept_checksum, piece_checksum, state_checksum
from dragoman.stores.lookups import call_ids_in, message_ids_in, run_id_in
from dragoman.stores.postgres.arrays import Bigints, Bytes, Texts
from dragoman.stores.postgres.statements import statements
from dragoman.stores.times import to_us

_SQL = statements("log")
Values = dict[str, object]


class _PinnedSetting(msgspec.Struct):
    pinned: bool = False


_PINNED_DECODER = msgspec.json.Decoder(_PinnedSetting)


def write(batch: Sequence[Append], node_id: str | None, connection: Connection) -> list[bool]:
    """Write each append completely or not at all. Returns which were accepted."""
    taken: set[int] = set()
    for indexes in split_into_rounds(batch):
        round_ = {batch[index].session_id: index for index in indexes}
        taken |= {round_[session_id] for session_id in _write([batch[index] for index in indexes], node_id, connection)}
    return [index in taken for index in range(len(batch))]


def split_into_rounds(batch: Sequence[Append]) -> list[list[int]]:
    """Divide a batch into as few rounds as possible, so that no session or name occurs twice in a round."""
    rounds: list[list[int]] = []
    last: dict[object, int] = {}
    """The last round of each session and name so far."""
    for index, append in enumerate(batch):
        number = last.get(append.session_id, -1) + 1
        if append.is_new and append.name is not None:
            name = append.owner, append.name
            number = last[name] = max(number, last.get(name, -1) + 1)
        last[append.session_id] = number
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(index)
    return rounds


def delete(session_id: SessionId, agents: Sequence[str], connection: Connection) -> None:
    """Remove a session and everything that belongs to it. Locking it first includes concurrent writes."""
    connection.execute(_SQL["lock"], {"session": session_id})
    connection.execute(_SQL["delete"], {"session": session_id, "agent": Texts(agents)})


def _write(appends: Sequence[Append], node_id: str | None, connection: Connection) -> set[SessionId]:
    """Write appends of different sessions. Returns the accepted ones."""
    new = [append for append in appends if append.is_new]
    if new:
        begun = _insert_sessions(new, node_id, connection)
        appends = [append for append in appends if not append.is_new or append.session_id in begun]
    growing = [append for append in appends if not append.events and not append.closed_blocks and append.head is None]
    taken = (
        _execute_for_session_ids(connection, "append_pieces", {**_fences(growing), **_pieces(growing)})
        if growing
        else set()
    )
    rest = [append for append in appends if append.session_id not in taken]
    if rest:
        taken |= _execute_for_session_ids(connection, "append", {**_values(rest), "node": node_id})
    for append in appends:
        if append.idempotency_records and append.session_id in taken:
            _store_idempotency_records(append.idempotency_records, connection)
        if append.kept and append.session_id in taken:
            _keep(append, connection)
    return taken


def _execute_for_session_ids(connection: Connection, statement: str, values: Values) -> set[SessionId]:
    return {SessionId(row[0]) for row in connection.execute(_SQL[statement], values)}


def _insert_sessions(appends: Sequence[Append], node_id: str | None, connection: Connection) -> set[SessionId]:
    begun = _execute_for_session_ids(
        connection,
        "insert_sessions",
        {
            "session": Texts(append.session_id for append in appends),
            "owner": Texts(append.owner for append in appends),
            "created_at": Bigints(to_us(append.head.created_at) for append in appends if append.head is not None),
            "node": node_id,
        },
    )
    naming = [append for append in appends if append.name is not None and append.session_id in begun]
    if naming:
        named = _execute_for_session_ids(
            connection,
            "insert_names",
            {
                "owner": Texts(append.owner for append in naming),
                "name": Bytes(encode_text(append.name or "") for append in naming),
                "session": Texts(append.session_id for append in naming),
            },
        )
        nameless = [append.session_id for append in naming if append.session_id not in named]
        if nameless:  # the name was used twice at once: the first one gets it
            connection.execute(_SQL["delete_unnamed_sessions"], {"session": Texts(nameless)})
            begun -= set(nameless)
    return begun


def _fences(appends: Sequence[Append]) -> Values:
    return {
        "session": Texts(append.session_id for append in appends),
        "after": Bigints(append.after for append in appends),
        "epoch": Bigints(append.epoch for append in appends),
    }


def _values(appends: Sequence[Append]) -> Values:
    heads = [append.head for append in appends]
    settings = [None if head is None else head.settings for head in heads]
    logged = [(append.session_id, each) for append in appends for each in append.events]
    closed = [(append.session_id, *block) for append in appends for block in append.closed_blocks]
    return {
        **_fences(appends),
        "grown": Bigints(len(append.events) for append in appends),
        "updated_at": Bigints(None if head is None else to_us(head.updated_at) for head in heads),
        "head": Texts(None if head is None else head.state for head in heads),
        "head_checksum": Bigints(
            None if head is None else state_checksum(append.session_id, head.state)
            for append, head in zip(appends, heads, strict=True)
        ),
        "settings": Texts(settings),
        "settings_checksum": Bigints(
            None if each is None else state_checksum(append.session_id, each)
            for append, each in zip(appends, settings, strict=True)
        ),
        "is_pinned": Bigints(None if each is None else int(_PINNED_DECODER.decode(each).pinned) for each in settings),
        "is_unlisted": Bigints(None if head is None else int(head.is_unlisted) for head in heads),
        "expires_at": Bigints(
            None if head is None or head.expires_at is None else to_us(head.expires_at) for head in heads
        ),
        "event_session": Texts(session_id for session_id, _ in logged),
        "event_seq": Bigints(each.seq for _, each in logged),
        "event_run": Texts(each.run_id for _, each in logged),
        "event_at": Bigints(to_us(each.at) for _, each in logged),
        "event_type": Texts(type_of(each.event) for _, each in logged),
        "event_payload": Texts(
            payload for append in appends for _, payload in zip(append.events, append.payloads, strict=True)
        ),
        "event_checksum": Bigints(
            event_checksum(append.session_id, each.seq, to_us(each.at), each.run_id, payload)
            for append in appends
            for each, payload in zip(append.events, append.payloads, strict=True)
        ),
        "closed_session": Texts(session_id for session_id, _, _ in closed),
        "closed_message": Texts(message_id for _, message_id, _ in closed),
        "closed_block": Bigints(block for _, _, block in closed),
        **_pieces(appends),
        **_lookups(appends),
    }


def _pieces(appends: Sequence[Append]) -> Values:
    pieces: list[tuple[SessionId, Piece]] = [(append.session_id, each) for append in appends for each in append.pieces]
    texts = [encode_text(piece.text) for _, piece in pieces]
    return {
        "piece_session": Texts(session_id for session_id, _ in pieces),
        "piece_after": Bigints(piece.after for _, piece in pieces),
        "piece_place": Bigints(piece.place for _, piece in pieces),
        "piece_message": Texts(piece.message_id for _, piece in pieces),
        "piece_block": Bigints(piece.index for _, piece in pieces),
        "piece_kind": Texts(piece.kind for _, piece in pieces),
        "piece_loop": Texts(piece.loop for _, piece in pieces),
        "piece_text": Bytes(texts),
        "piece_checksum": Bigints(
            piece_checksum(session_id, piece.after, piece.place, piece.message_id, piece.index, text)
            for (session_id, piece), text in zip(pieces, texts, strict=True)
        ),
    }


def _lookups(appends: Sequence[Append]) -> Values:
    runs: dict[str, tuple[SessionId, UserId, int]] = {}
    calls: dict[tuple[SessionId, str], None] = {}
    messages: dict[tuple[SessionId, str], int] = {}
    for append in appends:
        session_id = append.session_id
        for logged in append.events:
            if (run_id := run_id_in(logged.event)) is not None:
                runs[run_id] = (session_id, append.owner, logged.seq)
            calls |= dict.fromkeys((session_id, call_id) for call_id in call_ids_in(logged.event))
            messages |= dict.fromkeys(((session_id, name) for name in message_ids_in(logged.event)), logged.seq)
    return {
        "run": Texts(runs),
        "run_session": Texts(session_id for session_id, _, _ in runs.values()),
        "run_owner": Texts(owner for _, owner, _ in runs.values()),
        "run_seq": Bigints(seq for _, _, seq in runs.values()),
        "call_session": Texts(session_id for session_id, _ in calls),
        "call": Bytes(encode_text(call_id) for _, call_id in calls),
        "message_session": Texts(session_id for session_id, _ in messages),
        "message": Bytes(encode_text(name) for _, name in messages),
        "message_seq": Bigints(messages.values()),
    }


def _store_idempotency_records(records: Iterable[IdempotencyRecord], connection: Connection) -> None:
    for once in records:
        connection.execute(_SQL["forget_idempotency_records"], {"oldest": to_us(once.at - IDEMPOTENCY_RETENTION)})
        connection.execute(
            _SQL["store_idempotency_record"],
            {
                "owner": once.owner,
                "key": encode_text(once.key),
                "fingerprint": once.fingerprint,
                "session": once.session_id,
                "run": once.run_id,
                "at": to_us(once.at),
                "lasts": once.lasts,
            },
        )


def _keep(append: Append, connection: Connection) -> None:
    written = {key: value for key, value in append.kept.items() if value is not None}
    removed = [key for key, value in append.kept.items() if value is None]
    session_id = append.session_id
    if written:
        values = {
            "session": session_id,
            "key": Texts(written),
            "value": Bytes(written.values()),
            "checksum": Bigints(kept_checksum(session_id, key, value) for key, value in written.items()),
        }
        connection.execute(_SQL["keep"], values)
    if removed:
        connection.execute(_SQL["drop_kept"], {"session": session_id, "key": Texts(removed)})


def encode_text(text: str) -> bytes:
    """Encode a text that may contain any character for storage."""
    return text.encode("utf-8", "surrogatepass")
