-- The texts and titles of sessions, for searches: in lower case, with their trigrams as numbers that also depend on the
-- owner, so that a search reads no postings of others. Searches fill the index, each for its own user, so that writing
-- costs nothing more; what is not indexed yet is read from the events.

-- The users who have searched. From `since` on the trigger below notes their changed sessions; the index is complete, but
-- for those, when `is_listed`.
CREATE TABLE search_users (
    owner     text COLLATE "C" PRIMARY KEY,
    since     xid8 NOT NULL DEFAULT pg_current_xact_id(),
    is_listed boolean NOT NULL DEFAULT false
);

-- Sessions that have changed since they were indexed.
CREATE TABLE search_behind (
    owner      text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (owner, session_id)
);

-- Up to which event a session is indexed.
CREATE TABLE search_sessions (
    session_id text COLLATE "C" PRIMARY KEY,
    seq        bigint NOT NULL,
    title      text COLLATE "C" NOT NULL,
    grams      integer[] NOT NULL
);

CREATE INDEX search_sessions_by_gram ON search_sessions USING gin (grams) WITH (gin_pending_list_limit = 256);

CREATE TABLE search_texts (
    session_id text COLLATE "C" NOT NULL,
    text       text COLLATE "C" NOT NULL,
    grams      integer[] NOT NULL
);

CREATE INDEX search_texts_by_session ON search_texts (session_id);
CREATE INDEX search_texts_by_gram ON search_texts USING gin (grams) WITH (gin_pending_list_limit = 256);

CREATE FUNCTION note_for_search() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM search_users WHERE owner = NEW.owner) THEN
        INSERT INTO search_behind (owner, session_id) VALUES (NEW.owner, NEW.session_id) ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER session_changed AFTER UPDATE OF head ON sessions FOR EACH ROW
    WHEN (NEW.rest_seq IS DISTINCT FROM OLD.rest_seq) EXECUTE FUNCTION note_for_search();
