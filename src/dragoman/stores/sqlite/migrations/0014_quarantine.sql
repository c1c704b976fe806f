-- Why a session is in quarantine: `dragoman check --repair` found it damaged. It can be deleted, and nothing else.

ALTER TABLE sessions ADD COLUMN quarantine TEXT;
