-- Values that agents keep with their sessions.
CREATE TABLE kept (
    session_id text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    value      bytea NOT NULL,
    PRIMARY KEY (session_id, key)
);

-- Checkpoints do not get smaller: compressing them would only cost time.
ALTER TABLE kept ALTER COLUMN value SET STORAGE EXTERNAL;

-- Deleted sessions that agents have not forgotten yet.
CREATE TABLE forgetting (
    session_id text COLLATE "C" NOT NULL,
    agent      text COLLATE "C" NOT NULL,
    PRIMARY KEY (session_id, agent)
);
