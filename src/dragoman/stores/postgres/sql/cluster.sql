-- name: join
WITH dead AS (UPDATE nodes SET until = '-infinity' WHERE home = %(home)s)
INSERT INTO nodes (node, home, epoch, until, knows_peppers)
VALUES (%(node)s, %(home)s, nextval('epochs'), now() + make_interval(secs => %(lease)s), true)
RETURNING epoch

-- name: renew
-- A lease that ended stays ended: others may have taken what this server had.
UPDATE nodes SET until = now() + make_interval(secs => %(lease)s), seen = %(seen)s
WHERE node = %(node)s AND until > now()
RETURNING node

-- name: leave
UPDATE nodes SET until = '-infinity' WHERE node = %(node)s

-- name: other_nodes
SELECT node, epoch, seen, until > now() FROM nodes WHERE node <> %(node)s ORDER BY epoch

-- name: remove_dead_nodes
WITH gone AS (
    DELETE FROM nodes WHERE until <= now()
    AND NOT EXISTS (SELECT FROM sessions WHERE is_running AND sessions.node = nodes.node)
    AND NOT EXISTS (SELECT FROM fires WHERE is_running AND fires.node = nodes.node)
    RETURNING node
), keys_gone AS (DELETE FROM answering USING gone WHERE answering.node = gone.node)
DELETE FROM requests WHERE asked_at < now() - interval '10 minutes'

-- name: claim_session
-- The row is locked first; what it says then decides. Of the servers, those count that lived when this began, and the
-- one that asks has to be among them.
WITH living AS MATERIALIZED (
    SELECT node FROM nodes WHERE until > now()
), locked AS MATERIALIZED (
    SELECT session_id, seq, is_running, node, held_until, created_at FROM sessions WHERE session_id = %(session)s
    FOR NO KEY UPDATE
), claimable AS MATERIALIZED (
    SELECT session_id FROM locked
    WHERE %(node)s IN (SELECT node FROM living) AND (
        node = %(node)s OR node IS NULL OR node NOT IN (SELECT node FROM living)
        OR (NOT is_running AND (held_until IS NULL OR held_until < now()))
    )
), taken AS (
    UPDATE sessions SET
        epoch = nextval('epochs'), node = %(node)s, held_until = now() + make_interval(secs => %(reservation)s)
    FROM claimable WHERE sessions.session_id = claimable.session_id
    RETURNING sessions.session_id, sessions.epoch
)
SELECT taken.epoch, locked.seq, locked.is_running, locked.created_at FROM locked LEFT JOIN taken USING (session_id)

-- name: release_session
UPDATE sessions SET held_until = NULL
WHERE session_id = %(session)s AND node = %(node)s AND epoch = %(epoch)s

-- name: abandon_session
UPDATE sessions SET node = NULL, held_until = NULL
WHERE session_id = %(session)s AND node = %(node)s AND epoch = %(epoch)s

-- name: count_abandoned
SELECT count(*) FROM sessions
WHERE is_running AND (node IS NULL OR node NOT IN (SELECT node FROM nodes WHERE until > now()))

-- name: count_runs_on_other_servers
SELECT count(*) FROM sessions WHERE is_running AND owner = %(owner)s AND node IS DISTINCT FROM %(node)s

-- name: claim_abandoned
-- The living stand in an array, so that a row that another server just took is looked at again with its new node. The
-- agent is read as text: a head that is damaged must not stop the others. It is claimed by anybody, who then reports it.
WITH lost AS MATERIALIZED (
    SELECT session_id FROM sessions
    WHERE is_running AND (node IS NULL OR node <> ALL (ARRAY(SELECT node FROM nodes WHERE until > now())))
        AND %(node)s = ANY (ARRAY(SELECT node FROM nodes WHERE until > now()))
        AND coalesce(substring(head FROM '"agent":"((?:[^"\\]|\\.)*)"') = ANY (%(agents)s), true)
    ORDER BY session_id LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE sessions SET epoch = nextval('epochs'), node = %(node)s, held_until = NULL
FROM lost WHERE sessions.session_id = lost.session_id
RETURNING sessions.session_id

-- name: session_updates
-- One statement, so that all of a session is of one moment. Events are looked for only where there are newer ones. Each
-- session's rows are found by the index: as a plain join they would often be found by reading all pieces that there are.
WITH known AS MATERIALIZED (
    SELECT given.*, sessions.seq AS last, sessions.created_at, sessions.node, sessions.is_running
    FROM unnest(%(session)s, %(seq)s, %(pieces)s) AS given (session_id, seq, pieces) JOIN sessions USING (session_id)
)
SELECT 0 AS part, session_id, last AS a, created_at AS b, node AS c, '' AS d, is_running::int::bigint AS e, '' AS f,
    ''::bytea AS g, seq AS checksum
FROM known
UNION ALL
SELECT 1, session_id, new.seq, new.at, new.run_id, '', 0, '', convert_to(new.payload, 'UTF8'), new.checksum
FROM known CROSS JOIN LATERAL (
    SELECT seq, at, run_id, payload, checksum FROM events
    WHERE events.session_id = known.session_id AND events.seq > known.seq ORDER BY events.seq OFFSET 0
) AS new
WHERE known.last > known.seq
UNION ALL
SELECT 2, session_id, new.after, new.place, new.message_id, new.kind, new.block, new.loop, new.text, new.checksum
FROM known CROSS JOIN LATERAL (
    SELECT after, place, message_id, kind, block, loop, text, checksum FROM pieces
    WHERE pieces.session_id = known.session_id AND (after, place) > (known.seq, known.pieces) ORDER BY after, place
    OFFSET 0
) AS new
WHERE known.is_running

-- name: send_command
INSERT INTO requests (request_id, session_id, node, body)
SELECT %(request)s, session_id, node, %(body)s FROM sessions
WHERE session_id = %(session)s AND is_running AND node IN (SELECT node FROM nodes WHERE until > now())
RETURNING node

-- name: pending_commands
SELECT request_id, session_id, body FROM requests WHERE node = %(node)s AND answer IS NULL ORDER BY asked_at

-- name: store_reply
UPDATE requests SET answer = %(answer)s WHERE request_id = %(request)s AND answer IS NULL

-- name: find_reply
-- The answer, and whether there may still be one.
SELECT answer, EXISTS (SELECT FROM nodes WHERE nodes.node = requests.node AND until > now()) FROM requests
WHERE request_id = %(request)s

-- name: discard_command
DELETE FROM requests WHERE request_id = %(request)s

-- name: lock_idempotency_key
-- Who lives no more holds nothing: others would take it at once.
INSERT INTO answering (owner, key, node)
SELECT %(owner)s, %(key)s, %(node)s WHERE EXISTS (SELECT FROM nodes WHERE node = %(node)s AND until > now())
ON CONFLICT (owner, sha256(key)) DO UPDATE SET node = excluded.node, since = now()
    WHERE answering.node = excluded.node OR answering.since < now() - interval '30 seconds'
        OR answering.node NOT IN (SELECT nodes.node FROM nodes WHERE until > now())
RETURNING node

-- name: unlock_idempotency_key
DELETE FROM answering WHERE owner = %(owner)s AND sha256(key) = sha256(%(key)s) AND node = %(node)s

-- name: claim_abandoned_fires
-- A server whose lease has ended claims nothing: a living one would claim the same at once, and both would run it.
UPDATE fires SET node = %(node)s
WHERE is_running AND (node IS NULL OR node <> ALL (ARRAY(SELECT node FROM nodes WHERE until > now())))
    AND %(node)s = ANY (ARRAY(SELECT node FROM nodes WHERE until > now()))
RETURNING fire_id

-- name: schedules_version
SELECT schedules FROM changes
