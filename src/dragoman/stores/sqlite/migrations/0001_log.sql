-- Times are whole microseconds since 1970, UTC. Payloads are the JSON that was encoded once.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta VALUES ('epoch', 0);

-- `head` is the state at the session's last rest, without its settings; later events are folded onto it. There are some
-- exactly while `is_running`.
CREATE TABLE sessions (
    session_id TEXT NOT NULL UNIQUE,
    owner      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    is_running INTEGER NOT NULL,
    head       TEXT NOT NULL,
    settings   TEXT NOT NULL
) STRICT;

CREATE INDEX sessions_by_owner ON sessions (owner, created_at, session_id);
CREATE INDEX sessions_running ON sessions (session_id) WHERE is_running = 1;

-- A table in order of arrival with a small index, not a tree ordered by session: many sessions append at once, and would
-- each split such a tree in its middle (half the time and half the size, measured).
CREATE TABLE events (
    session_id TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    run_id     TEXT,
    at         INTEGER NOT NULL,
    type       TEXT NOT NULL,
    payload    TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX events_in_order ON events (session_id, seq);

-- What open blocks hold so far. The event that closes a block holds all its words; its rows mean nothing from then on, and
-- go some time later. There is no index, which would cost more than the rest of a piece: the writer remembers which rows
-- each open block has.
CREATE TABLE pieces (
    id         INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL,
    after      INTEGER NOT NULL,
    place      INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    block      INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    loop       TEXT NOT NULL,
    text       TEXT NOT NULL
) STRICT;

-- From here on: indexes, all of which could be rebuilt from the events.

CREATE TABLE runs (
    run_id     TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    owner      TEXT NOT NULL,
    first_seq  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE calls (
    session_id TEXT NOT NULL,
    call_id    TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (session_id, call_id)
) STRICT, WITHOUT ROWID;

-- Ids of messages, ours and those that clients gave to messages of the user, with the event that completed the message.
CREATE TABLE messages (
    session_id TEXT NOT NULL,
    id         TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (session_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE names (
    owner      TEXT NOT NULL,
    name       TEXT NOT NULL,
    session_id TEXT NOT NULL,
    PRIMARY KEY (owner, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX names_by_session ON names (session_id);

CREATE TABLE once (
    owner       TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    run_id      TEXT,
    at          INTEGER NOT NULL,
    lasts       INTEGER NOT NULL,
    PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX once_by_age ON once (at) WHERE lasts = 0;
CREATE INDEX once_by_session ON once (session_id);

CREATE TABLE keys (
    key_id       TEXT PRIMARY KEY,
    digest       BLOB NOT NULL UNIQUE,
    name         TEXT NOT NULL,
    user         TEXT NOT NULL,
    masked       TEXT NOT NULL,
    scopes       TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER
) STRICT, WITHOUT ROWID;
