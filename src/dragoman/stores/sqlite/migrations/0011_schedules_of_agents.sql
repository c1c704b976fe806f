-- The agent that declares a schedule; NULL: a user created it, and it is of the default agent.

ALTER TABLE schedules ADD COLUMN agent TEXT;
