-- After how many days without change a user's sessions are deleted; 0: never; NULL: as the server's setting says.

ALTER TABLE profiles ADD COLUMN retention_days INTEGER;
