-- `pepper` is the id of the secret with which the digest was made; NULL: none, as in release 0.1.0.
ALTER TABLE keys ADD COLUMN pepper TEXT;

-- The fingerprints of the key files with which the data was written.
CREATE TABLE key_fingerprints (
    name        TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL
) STRICT, WITHOUT ROWID;
