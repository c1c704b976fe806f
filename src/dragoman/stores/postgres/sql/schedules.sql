-- name: put
INSERT INTO schedules (schedule_id, created_at, body) VALUES (%(schedule)s, %(created_at)s, %(body)s)
ON CONFLICT (schedule_id) DO UPDATE SET created_at = excluded.created_at, body = excluded.body

-- name: lock_schedule
-- And whether the server that asks has a lease, if servers share the database.
SELECT body, %(node)s::text IS NULL OR EXISTS (SELECT FROM nodes WHERE node = %(node)s AND until > now())
FROM schedules WHERE schedule_id = %(schedule)s FOR UPDATE

-- name: remove
WITH gone AS (DELETE FROM schedules WHERE schedule_id = %(schedule)s)
DELETE FROM fires WHERE schedule_id = %(schedule)s

-- name: all
SELECT body FROM schedules ORDER BY created_at, schedule_id

-- name: claim_fire
INSERT INTO fires (fire_id, schedule_id, due_at, is_running, body, node)
VALUES (%(fire)s, %(schedule)s, %(due_at)s, %(is_running)s, %(body)s, %(node)s)
ON CONFLICT DO NOTHING

-- name: forget
DELETE FROM fires WHERE schedule_id = %(schedule)s AND NOT is_running AND due_at <= (
    SELECT due_at FROM fires WHERE schedule_id = %(schedule)s ORDER BY due_at DESC LIMIT 1 OFFSET %(limit)s
)

-- name: update_fire
UPDATE fires SET is_running = %(is_running)s, body = %(body)s WHERE fire_id = %(fire)s

-- name: fires
SELECT body FROM fires WHERE schedule_id = %(schedule)s ORDER BY due_at DESC LIMIT %(limit)s OFFSET %(offset)s

-- name: running_fires
SELECT body FROM fires WHERE is_running ORDER BY due_at, fire_id
