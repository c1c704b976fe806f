-- How many background tasks led to one, so that they cannot start each other for ever.

ALTER TABLE schedules ADD COLUMN task_depth INTEGER NOT NULL DEFAULT 0;
