-- Several servers over one database. Who writes a session is told in its row: `epoch` fences off whoever had it before,
-- `node` is the server that wrote it last, and has it for as long as it `is_running` and that server lives. A session at
-- rest is anybody's; whoever is about to write has it to itself until `held_until`.
ALTER TABLE sessions ADD COLUMN node text COLLATE "C", ADD COLUMN held_until timestamptz;

-- A server lives until its lease ends, by this database's clock. `home` is where its files are: who has the lock on them
-- knows that the server before is dead. `seen` is the latest epoch of a newcomer that it has taken note of.
CREATE TABLE nodes (
    node  text COLLATE "C" PRIMARY KEY,
    home  text NOT NULL,
    epoch bigint NOT NULL,
    seen  bigint NOT NULL DEFAULT 0,
    until timestamptz NOT NULL
) WITH (fillfactor = 50);

-- What one server asks another to do with a session that runs there.
CREATE TABLE requests (
    request_id text COLLATE "C" PRIMARY KEY,
    session_id text COLLATE "C" NOT NULL,
    node       text COLLATE "C" NOT NULL,
    asked_at   timestamptz NOT NULL DEFAULT now(),
    body       text NOT NULL,
    answer     text
);

CREATE INDEX requests_open ON requests (node) WHERE answer IS NULL;

-- Keys of requests that a server is answering now, so that the same request waits on every other.
CREATE TABLE answering (
    owner text COLLATE "C" NOT NULL,
    key   bytea NOT NULL,
    node  text COLLATE "C" NOT NULL,
    since timestamptz NOT NULL DEFAULT now()
);

CREATE UNIQUE INDEX answering_once ON answering (owner, sha256(key));

-- The server that plays a fire.
ALTER TABLE fires ADD COLUMN node text COLLATE "C";

-- Counts the changes of schedules, which servers keep in memory too.
ALTER TABLE changes ADD COLUMN schedules bigint NOT NULL DEFAULT 0;

CREATE FUNCTION note_schedule() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE changes SET schedules = schedules + 1;
    RETURN NULL;
END
$$;

CREATE TRIGGER schedules_changed AFTER INSERT OR DELETE OR UPDATE ON schedules
    FOR EACH STATEMENT EXECUTE FUNCTION note_schedule();
