-- The audit log. Entries are only added: the trigger refuses changes.

CREATE TABLE audit (
    entry_id text COLLATE "C" PRIMARY KEY,
    "user"   text COLLATE "C" NOT NULL,
    action   text COLLATE "C" NOT NULL,
    body     text NOT NULL
);

CREATE INDEX audit_by_user ON audit ("user", entry_id);
CREATE INDEX audit_by_action ON audit (action, entry_id);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only';
END
$$;

CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON audit FOR EACH ROW EXECUTE FUNCTION refuse_change();
