-- Sessions that are in no list until somebody goes on with them, and sessions that are deleted at a certain time. Lists
-- read only the rows that they show: the indexes contain no others.
ALTER TABLE sessions ADD COLUMN is_unlisted boolean NOT NULL DEFAULT false, ADD COLUMN expires_at bigint;

DROP INDEX sessions_by_owner;
CREATE INDEX sessions_by_owner ON sessions (owner, created_at, session_id) WHERE NOT is_unlisted;

DROP INDEX sessions_by_use;
CREATE INDEX sessions_by_use ON sessions (owner, is_pinned DESC, updated_at DESC, session_id DESC)
    WHERE NOT is_unlisted;

CREATE INDEX sessions_by_expiry ON sessions (expires_at) WHERE expires_at IS NOT NULL;
