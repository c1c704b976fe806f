-- Sessions that are in no list until somebody goes on with them, and sessions that are deleted at a certain time. Lists
-- read only the rows that they show: the indexes contain no others.

ALTER TABLE sessions ADD COLUMN is_unlisted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN expires_at INTEGER;

DROP INDEX sessions_by_owner;
CREATE INDEX sessions_by_owner ON sessions (owner, created_at, session_id) WHERE is_unlisted = 0;

DROP INDEX sessions_by_use;
CREATE INDEX sessions_by_use
    ON sessions (owner, ifnull(json_extract(settings, '$.pinned'), 0) DESC, updated_at DESC, session_id DESC)
    WHERE is_unlisted = 0;

CREATE INDEX sessions_by_expiry ON sessions (expires_at) WHERE expires_at IS NOT NULL;
