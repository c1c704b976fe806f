-- A session gets a number, by which its events and messages are found: an index by the 36 characters of its id had four
-- times the pages, and every turn wrote as many more.

CREATE TABLE sessions_numbered (
    number     INTEGER PRIMARY KEY,
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

INSERT INTO sessions_numbered
    SELECT rowid, session_id, owner, created_at, updated_at, seq, epoch, is_running, head, settings FROM sessions;

DROP TABLE sessions;
ALTER TABLE sessions_numbered RENAME TO sessions;

CREATE INDEX sessions_by_owner ON sessions (owner, created_at, session_id);
CREATE INDEX sessions_running ON sessions (session_id) WHERE is_running = 1;
CREATE INDEX sessions_by_use
    ON sessions (owner, ifnull(json_extract(settings, '$.pinned'), 0) DESC, updated_at DESC, session_id DESC);

CREATE TRIGGER shares_go_with_their_session AFTER DELETE ON sessions BEGIN
    DELETE FROM shares WHERE session_id = old.session_id;
END;

DROP INDEX events_in_order;
ALTER TABLE events ADD COLUMN session INTEGER NOT NULL DEFAULT 0;
UPDATE events SET session = (SELECT number FROM sessions WHERE sessions.session_id = events.session_id);
CREATE UNIQUE INDEX events_in_order ON events (session, seq);

CREATE TABLE messages_numbered (
    session INTEGER NOT NULL,
    id      TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;

INSERT INTO messages_numbered
    SELECT number, id, messages.seq FROM messages JOIN sessions USING (session_id);

DROP TABLE messages;
ALTER TABLE messages_numbered RENAME TO messages;

-- In order of arrival as well: clients' keys come in no order, and their rows are long.
CREATE TABLE once_as_it_came (
    owner       TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    run_id      TEXT,
    at          INTEGER NOT NULL,
    lasts       INTEGER NOT NULL,
    UNIQUE (owner, key)
) STRICT;

INSERT INTO once_as_it_came SELECT owner, key, fingerprint, session_id, run_id, at, lasts FROM once ORDER BY at;

DROP TABLE once;
ALTER TABLE once_as_it_came RENAME TO once;

CREATE INDEX once_by_age ON once (at) WHERE lasts = 0;
CREATE INDEX once_by_session ON once (session_id);
