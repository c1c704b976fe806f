-- The audit log. Entries are only added: the trigger refuses changes.

CREATE TABLE audit (
    entry_id TEXT PRIMARY KEY,
    user     TEXT NOT NULL,
    action   TEXT NOT NULL,
    body     TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX audit_by_user ON audit (user, entry_id);
CREATE INDEX audit_by_action ON audit (action, entry_id);

CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON audit BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
