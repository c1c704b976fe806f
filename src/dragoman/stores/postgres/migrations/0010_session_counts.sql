-- How many listed sessions each owner has: the sum of an owner's rows. Changes are added as rows of their own, so that
-- transactions do not wait for each other, and are merged when sessions are deleted, and now and then.

CREATE TABLE session_counts (
    owner text COLLATE "C" NOT NULL,
    count bigint NOT NULL
);

CREATE INDEX session_counts_by_owner ON session_counts (owner);

CREATE FUNCTION count_sessions() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    change int := CASE TG_OP WHEN 'DELETE' THEN -1 ELSE 1 END;
BEGIN
    INSERT INTO session_counts (owner, count)
    SELECT owner, change * count(*) FROM changed WHERE NOT is_unlisted GROUP BY owner;
    IF TG_OP = 'DELETE' OR random() < 0.01 THEN
        WITH merged AS (
            DELETE FROM session_counts WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM session_counts WHERE owner IN (SELECT owner FROM changed) FOR UPDATE SKIP LOCKED
            )) RETURNING owner, count
        )
        INSERT INTO session_counts (owner, count) SELECT owner, sum(count) FROM merged GROUP BY owner HAVING sum(count) <> 0;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER sessions_created AFTER INSERT ON sessions REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION count_sessions();
CREATE TRIGGER sessions_deleted AFTER DELETE ON sessions REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION count_sessions();

CREATE FUNCTION count_listed_session() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO session_counts (owner, count) VALUES (NEW.owner, CASE WHEN NEW.is_unlisted THEN -1 ELSE 1 END);
    RETURN NULL;
END
$$;

CREATE TRIGGER session_listed AFTER UPDATE OF is_unlisted ON sessions FOR EACH ROW
    WHEN (NEW.is_unlisted <> OLD.is_unlisted) EXECUTE FUNCTION count_listed_session();

INSERT INTO session_counts (owner, count) SELECT owner, count(*) FROM sessions WHERE NOT is_unlisted GROUP BY owner;
