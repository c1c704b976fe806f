-- Background tasks are schedules that fire once: the session that gets the result.

ALTER TABLE schedules ADD COLUMN reports_to TEXT;
