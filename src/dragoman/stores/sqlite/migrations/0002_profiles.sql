-- What users have set for all agents and protocols.

CREATE TABLE profiles (
    user      TEXT PRIMARY KEY,
    time_zone TEXT,
    locale    TEXT
) STRICT, WITHOUT ROWID;
