-- Values that agents keep with their sessions. Rows of a deleted session go in portions, like its events.

CREATE TABLE kept (
    session  INTEGER NOT NULL,
    key      TEXT NOT NULL,
    value    BLOB NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX kept_by_key ON kept (session, key);

-- Deleted sessions that agents have not forgotten yet.

CREATE TABLE forgetting (
    session_id TEXT NOT NULL,
    agent      TEXT NOT NULL,
    PRIMARY KEY (session_id, agent)
) STRICT, WITHOUT ROWID;
