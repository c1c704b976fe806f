-- What is remembered of users. An id is never given twice. `searched` is what a keyword is looked for in, case folded.

CREATE TABLE memories (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    user           TEXT NOT NULL,
    type           TEXT NOT NULL,
    content        TEXT NOT NULL,
    skill_name     TEXT,
    record_type    TEXT,
    scope          TEXT,
    owner          TEXT,
    topic          TEXT,
    mem0_id        TEXT,
    write_reason   TEXT,
    source_session TEXT,
    superseded_by  INTEGER,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER,
    hit_count      INTEGER NOT NULL,
    last_hit_at    INTEGER,
    disabled       INTEGER NOT NULL,
    searched       TEXT NOT NULL
) STRICT;

CREATE INDEX memories_by_user ON memories (user, id);

-- Trigrams find parts of words, and words of scripts that stand without spaces.
CREATE VIRTUAL TABLE memories_text USING fts5 (
    searched, content = 'memories', content_rowid = 'id', tokenize = 'trigram case_sensitive 1'
);

CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
    INSERT INTO memories_text (rowid, searched) VALUES (new.id, new.searched);
END;

CREATE TRIGGER memories_removed AFTER DELETE ON memories BEGIN
    INSERT INTO memories_text (memories_text, rowid, searched) VALUES ('delete', old.id, old.searched);
END;

CREATE TRIGGER memories_changed AFTER UPDATE OF searched ON memories BEGIN
    INSERT INTO memories_text (memories_text, rowid, searched) VALUES ('delete', old.id, old.searched);
    INSERT INTO memories_text (rowid, searched) VALUES (new.id, new.searched);
END;

-- The runs whose hits were counted, for a day: a run that goes on after a crash counts them once.
CREATE TABLE memory_hits (
    run_id TEXT PRIMARY KEY,
    at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX memory_hits_by_age ON memory_hits (at);

-- Prompts that are sent at certain times. `next_at` is when the next time is due; none, when there is none any more.

CREATE TABLE schedules (
    schedule_id        TEXT PRIMARY KEY,
    user               TEXT NOT NULL,
    title              TEXT NOT NULL,
    prompt             TEXT NOT NULL,
    cron               TEXT NOT NULL,
    time_zone          TEXT NOT NULL,
    enabled            INTEGER NOT NULL,
    expires_at         INTEGER,
    skip_confirmations INTEGER NOT NULL,
    model              TEXT,
    created_at         INTEGER NOT NULL,
    updated_at         INTEGER NOT NULL,
    next_at            INTEGER,
    last_at            INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX schedules_by_user ON schedules (user, schedule_id);
CREATE INDEX schedules_due ON schedules (next_at) WHERE enabled = 1 AND next_at IS NOT NULL;

-- One row for each time that came due: it is written in the transaction that moves the schedule on.
CREATE TABLE fires (
    fire_id     TEXT PRIMARY KEY,
    schedule_id TEXT NOT NULL,
    due_at      INTEGER NOT NULL,
    session_id  TEXT,
    status      TEXT NOT NULL,
    error       TEXT,
    started_at  INTEGER NOT NULL,
    finished_at INTEGER,
    UNIQUE (schedule_id, due_at)
) STRICT, WITHOUT ROWID;

CREATE INDEX fires_running ON fires (schedule_id) WHERE status = 'running';

-- Links that show a session to whoever has them. A token is kept as its digest.

CREATE TABLE shares (
    digest     BLOB PRIMARY KEY,
    owner      TEXT NOT NULL,
    session_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX shares_by_session ON shares (session_id);

CREATE TRIGGER shares_go_with_their_session AFTER DELETE ON sessions BEGIN
    DELETE FROM shares WHERE session_id = old.session_id;
END;
