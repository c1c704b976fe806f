-- Whether a server can check digests of API keys that were made with a pepper. Those of release 0.1.0 cannot: while one
-- of them lives, no digest is replaced.
ALTER TABLE nodes ADD COLUMN knows_peppers boolean NOT NULL DEFAULT false;

-- Digests and token limits, which are part of the body, change too.
DROP TRIGGER keys_changed ON keys;
CREATE TRIGGER keys_changed AFTER INSERT OR DELETE OR UPDATE OF name, body ON keys
    FOR EACH STATEMENT EXECUTE FUNCTION note_change();
