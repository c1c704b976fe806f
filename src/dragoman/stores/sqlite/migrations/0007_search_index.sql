-- The texts of sessions, for searches: in lower case, joined, as many as were indexed at a time. Searches fill the index,
-- each for its own user, so that writing costs nothing more; what is not indexed yet is read from the events. The ids of a
-- user's texts are a range, so that a search reads no postings of others.

CREATE TABLE search_users (
    number INTEGER PRIMARY KEY,
    user   TEXT NOT NULL UNIQUE
) STRICT;

-- Up to which event a session is indexed.
CREATE TABLE search_sessions (
    session INTEGER PRIMARY KEY,
    seq     INTEGER NOT NULL,
    title   TEXT NOT NULL
) STRICT;

CREATE TABLE search_texts (
    id      INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    text    TEXT NOT NULL
) STRICT;

CREATE INDEX search_texts_by_session ON search_texts (session);

-- Without positions: a text that has all trigrams is then compared. That takes a third of the time and space.
CREATE VIRTUAL TABLE search_trigrams USING fts5 (
    text, content = 'search_texts', content_rowid = 'id', tokenize = 'trigram case_sensitive 1', detail = none
);

CREATE TRIGGER search_texts_added AFTER INSERT ON search_texts BEGIN
    INSERT INTO search_trigrams (rowid, text) VALUES (new.id, new.text);
END;

CREATE TRIGGER search_texts_removed AFTER DELETE ON search_texts BEGIN
    INSERT INTO search_trigrams (search_trigrams, rowid, text) VALUES ('delete', old.id, old.text);
END;
