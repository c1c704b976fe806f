-- Checksums, so that a disk that alters data does not alter what users read. Rows of earlier releases have none.
ALTER TABLE events ADD COLUMN checksum bigint;
ALTER TABLE pieces ADD COLUMN checksum bigint;
ALTER TABLE kept ADD COLUMN checksum bigint;
ALTER TABLE sessions ADD COLUMN head_checksum bigint, ADD COLUMN settings_checksum bigint;

-- A server of an earlier release, which may go on for a while, changes values without their checksums: they get none.
CREATE FUNCTION forget_session_checksums() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.head_checksum := NULL;
    NEW.settings_checksum := NULL;
    RETURN NEW;
END
$$;

CREATE TRIGGER session_without_checksums BEFORE UPDATE OF head, settings ON sessions FOR EACH ROW
    WHEN (NEW.head_checksum IS NOT DISTINCT FROM OLD.head_checksum AND NEW.head IS DISTINCT FROM OLD.head
        OR NEW.settings_checksum IS NOT DISTINCT FROM OLD.settings_checksum
            AND NEW.settings IS DISTINCT FROM OLD.settings)
    EXECUTE FUNCTION forget_session_checksums();

CREATE FUNCTION forget_kept_checksum() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.checksum := NULL;
    RETURN NEW;
END
$$;

CREATE TRIGGER kept_without_checksum BEFORE UPDATE OF value ON kept FOR EACH ROW
    WHEN (NEW.checksum IS NOT DISTINCT FROM OLD.checksum AND NEW.value IS DISTINCT FROM OLD.value)
    EXECUTE FUNCTION forget_kept_checksum();

-- Why a session is in quarantine: `dragoman check --repair` found it damaged. It can be deleted, and nothing else.
ALTER TABLE sessions ADD COLUMN quarantine text;
