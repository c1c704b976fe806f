-- name: join
WITH dead AS (UPDATE nodes SET until = '-infinity' WHERE home = %(home)s)
INSERT INTO nodes (node, home, epoch, until)
VALUES (%(node)s, %(home)s, nextval('epochs'), now() + make_interval(secs => %(lease)s))
RETURNING epoch

-- name: renew
-- A lease that ended stays ended: others may have taken what this server had.
UPDATE nodes SET until = now() + make_interval(secs => %(lease)s), seen = %(seen)s
WHERE node = %(node)s AND until > now()
RETURNING node

-- name: leave
UPDATE nodes SET until = '-infinity' WHERE node = %(node)s

-- name: others
SELECT node, epoch, seen, until > now() FROM nodes WHERE node <> %(node)s ORDER BY epoch

-- name: forget_dead
WITH gone AS (
    DELETE FROM nodes WHERE until <= now()
    AND NOT EXISTS (SELECT FROM sessions WHERE is_running AND sessions.node = nodes.node)
    AND NOT EXISTS (SELECT FROM fires WHERE is_running AND fires.node = nodes.node)
    RETURNING node
), keys_gone AS (DELETE FROM answering USING gone WHERE answering.node = gone.node)
DELETE FROM requests WHERE asked_at < now() - interval '10 minutes'

-- name: claim
-- The row is locked first; what it says then decides. Of the servers, those count that lived when this began, and the
-- one that asks has to be among them.
WITH living AS MATERIALIZED (
    SELECT node FROM nodes WHERE until > now()
), held AS MATERIALIZED (
    SELECT session_id, seq, is_running, node, held_until, created_at FROM sessions WHERE session_id = %(session)s
    FOR NO KEY UPDATE
), free AS MATERIALIZED (
    SELECT session_id FROM held
    WHERE %(node)s IN (SELECT node FROM living) AND (
        node = %(node)s OR node IS NULL OR node NOT IN (SELECT node FROM living)
        OR (NOT is_running AND (held_until IS NULL OR held_until < now()))
    )
), taken AS (
    UPDATE sessions SET
        epoch = nextval('epochs'), node = %(node)s, held_until = now() + make_interval(secs => %(hold)s)
    FROM free WHERE sessions.session_id = free.session_id
    RETURNING sessions.session_id, sessions.epoch
)
SELECT taken.epoch, held.seq, held.is_running, held.created_at FROM held LEFT JOIN taken USING (session_id)

-- name: release
UPDATE sessions SET held_until = NULL
WHERE session_id = %(session)s AND node = %(node)s AND epoch = %(epoch)s

-- name: take_abandoned
-- The living stand in an array, so that a row that another server just took is looked at again with its new node.
WITH lost AS MATERIALIZED (
    SELECT session_id FROM sessions
    WHERE is_running AND (node IS NULL OR node <> ALL (ARRAY(SELECT node FROM nodes WHERE until > now())))
        AND %(node)s = ANY (ARRAY(SELECT node FROM nodes WHERE until > now()))
    ORDER BY session_id LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE sessions SET epoch = nextval('epochs'), node = %(node)s, held_until = NULL
FROM lost WHERE sessions.session_id = lost.session_id
RETURNING sessions.session_id

-- name: news
-- One statement, so that all of a session is of one moment.
WITH given AS (
    SELECT * FROM unnest(%(session)s, %(seq)s, %(pieces)s) AS given (session_id, seq, pieces)
)
SELECT 0 AS part, sessions.session_id, sessions.seq AS a, sessions.created_at AS b, sessions.node AS c, '' AS d,
    sessions.is_running::int::bigint AS e, '' AS f, ''::bytea AS g
FROM given JOIN sessions USING (session_id)
UNION ALL
SELECT 1, events.session_id, events.seq, events.at, events.run_id, events.payload, 0, '', ''
FROM given JOIN events ON events.session_id = given.session_id AND events.seq > given.seq
UNION ALL
SELECT 2, pieces.session_id, pieces.after, pieces.place, pieces.message_id, pieces.kind, pieces.block, pieces.loop,
    pieces.text
FROM given JOIN pieces ON pieces.session_id = given.session_id
    AND (pieces.after, pieces.place) > (given.seq, given.pieces)
ORDER BY part, session_id, a, b

-- name: ask
INSERT INTO requests (request_id, session_id, node, body)
SELECT %(request)s, session_id, node, %(body)s FROM sessions
WHERE session_id = %(session)s AND is_running AND node IN (SELECT node FROM nodes WHERE until > now())
RETURNING node

-- name: asked
SELECT request_id, session_id, body FROM requests WHERE node = %(node)s AND answer IS NULL ORDER BY asked_at

-- name: answer
UPDATE requests SET answer = %(answer)s WHERE request_id = %(request)s AND answer IS NULL

-- name: answered
-- The answer, and whether there may still be one.
SELECT answer, EXISTS (SELECT FROM nodes WHERE nodes.node = requests.node AND until > now()) FROM requests
WHERE request_id = %(request)s

-- name: unask
DELETE FROM requests WHERE request_id = %(request)s

-- name: hold_key
INSERT INTO answering (owner, key, node) VALUES (%(owner)s, %(key)s, %(node)s)
ON CONFLICT (owner, sha256(key)) DO UPDATE SET node = excluded.node, since = now()
    WHERE answering.node = excluded.node OR answering.since < now() - interval '30 seconds'
        OR answering.node NOT IN (SELECT nodes.node FROM nodes WHERE until > now())
RETURNING node

-- name: free_key
DELETE FROM answering WHERE owner = %(owner)s AND sha256(key) = sha256(%(key)s) AND node = %(node)s

-- name: take_fires
UPDATE fires SET node = %(node)s
WHERE is_running AND (node IS NULL OR node <> ALL (ARRAY(SELECT node FROM nodes WHERE until > now())))
RETURNING fire_id

-- name: schedules
SELECT schedules FROM changes
