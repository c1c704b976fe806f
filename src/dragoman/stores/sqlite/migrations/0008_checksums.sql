-- Checksums, so that a disk that alters data does not alter what users read. Rows of earlier releases have none.

ALTER TABLE events ADD COLUMN checksum INTEGER;
ALTER TABLE pieces ADD COLUMN checksum INTEGER;
ALTER TABLE sessions ADD COLUMN head_checksum INTEGER;
ALTER TABLE sessions ADD COLUMN settings_checksum INTEGER;
