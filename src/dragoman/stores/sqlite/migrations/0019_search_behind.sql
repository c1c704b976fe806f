-- What a list or a search of a user with very many sessions must not read: all of them.

-- How many listed sessions each owner has.
CREATE TABLE session_counts (
    owner TEXT PRIMARY KEY,
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO session_counts (owner, count) SELECT owner, count(*) FROM sessions WHERE is_unlisted = 0 GROUP BY owner;

CREATE TRIGGER listed_session_created AFTER INSERT ON sessions WHEN NEW.is_unlisted = 0 BEGIN
    INSERT INTO session_counts (owner, count) VALUES (NEW.owner, 1) ON CONFLICT (owner) DO UPDATE SET count = count + 1;
END;

CREATE TRIGGER listed_session_deleted AFTER DELETE ON sessions WHEN OLD.is_unlisted = 0 BEGIN
    UPDATE session_counts SET count = count - 1 WHERE owner = OLD.owner;
    DELETE FROM session_counts WHERE owner = OLD.owner AND count = 0;
END;

CREATE TRIGGER session_listed AFTER UPDATE OF is_unlisted ON sessions WHEN NEW.is_unlisted < OLD.is_unlisted BEGIN
    INSERT INTO session_counts (owner, count) VALUES (NEW.owner, 1) ON CONFLICT (owner) DO UPDATE SET count = count + 1;
END;

CREATE TRIGGER session_unlisted AFTER UPDATE OF is_unlisted ON sessions WHEN NEW.is_unlisted > OLD.is_unlisted BEGIN
    UPDATE session_counts SET count = count - 1 WHERE owner = NEW.owner;
    DELETE FROM session_counts WHERE owner = NEW.owner AND count = 0;
END;

-- Sessions that have changed since they were indexed. They are noted from a user's first search on, at the end of a run.
-- The index contains everything else if `is_complete`.
ALTER TABLE search_users ADD COLUMN is_complete INTEGER NOT NULL DEFAULT 0;

CREATE TABLE search_behind (
    session INTEGER PRIMARY KEY,
    user    INTEGER NOT NULL
) STRICT;

CREATE INDEX search_behind_by_user ON search_behind (user);

CREATE TRIGGER session_created_for_search AFTER INSERT ON sessions BEGIN
    INSERT OR IGNORE INTO search_behind SELECT NEW.number, search_users.number FROM search_users WHERE user = NEW.owner;
END;

CREATE TRIGGER session_changed_for_search AFTER UPDATE OF head ON sessions BEGIN
    INSERT OR IGNORE INTO search_behind SELECT NEW.number, search_users.number FROM search_users WHERE user = NEW.owner;
END;

CREATE TRIGGER session_deleted_for_search AFTER DELETE ON sessions BEGIN
    DELETE FROM search_behind WHERE session = OLD.number;
END;

-- Titles are found in the index like other texts.
ALTER TABLE search_texts ADD COLUMN is_title INTEGER NOT NULL DEFAULT 0;

INSERT INTO search_texts (id, session, text, is_title)
    SELECT ifnull((SELECT max(id) FROM search_texts WHERE id BETWEEN search_users.number << 32
            AND (search_users.number << 32) + 4294967295), (search_users.number << 32) - 1)
            + row_number() OVER (PARTITION BY search_users.number ORDER BY updated_at),
        sessions.number, search_sessions.title, 1
    FROM search_sessions JOIN sessions ON sessions.number = session JOIN search_users ON user = owner
    WHERE search_sessions.title <> '';

ALTER TABLE search_sessions DROP COLUMN title;
