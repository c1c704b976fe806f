-- A deleted session is gone at once, and its rows go in portions: one of a hundred thousand events would keep everybody
-- else's commits waiting for a second. Until then its number is not given again, and what is found under it belongs to no
-- session. So all that has many rows of one session is kept by its number: its id may be used again at once.

CREATE TABLE deleted (
    number INTEGER PRIMARY KEY
) STRICT;

CREATE TABLE runs_numbered (
    run_id    TEXT PRIMARY KEY,
    session   INTEGER NOT NULL,
    first_seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO runs_numbered SELECT run_id, number, first_seq FROM runs JOIN sessions USING (session_id);

DROP TABLE runs;
ALTER TABLE runs_numbered RENAME TO runs;

CREATE TABLE calls_numbered (
    session INTEGER NOT NULL,
    call_id TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    PRIMARY KEY (session, call_id)
) STRICT, WITHOUT ROWID;

INSERT INTO calls_numbered SELECT number, call_id, calls.seq FROM calls JOIN sessions USING (session_id);

DROP TABLE calls;
ALTER TABLE calls_numbered RENAME TO calls;

CREATE TABLE once_numbered (
    owner       TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    session     INTEGER NOT NULL,
    run_id      TEXT,
    at          INTEGER NOT NULL,
    lasts       INTEGER NOT NULL,
    UNIQUE (owner, key)
) STRICT;

INSERT INTO once_numbered
    SELECT once.owner, key, fingerprint, number, run_id, at, lasts FROM once JOIN sessions USING (session_id)
    ORDER BY once.rowid;

DROP TABLE once;
ALTER TABLE once_numbered RENAME TO once;

CREATE INDEX once_by_age ON once (at) WHERE lasts = 0;
CREATE INDEX once_by_session ON once (session);
