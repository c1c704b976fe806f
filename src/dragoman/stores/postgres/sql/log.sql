-- name: claim_epoch
SELECT nextval('epochs')

-- name: insert_sessions
-- New sessions, before their first event. One whose id is taken is left out.
INSERT INTO sessions (
    session_id, owner, created_at, updated_at, seq, rest_seq, epoch, is_running, is_pinned, head, settings, node
)
SELECT session_id, owner, created_at, created_at, 0, 0, 0, false, false, '', '', %(node)s
FROM unnest(%(session)s, %(owner)s, %(created_at)s) AS given (session_id, owner, created_at)
ORDER BY session_id
ON CONFLICT DO NOTHING
RETURNING session_id

-- name: insert_names
-- Names of new sessions. One whose name is taken is left out.
INSERT INTO names (owner, name, session_id)
SELECT owner, name, session_id
FROM unnest(%(owner)s, %(name)s, %(session)s) AS given (owner, name, session_id)
ORDER BY owner, sha256(name)
ON CONFLICT DO NOTHING
RETURNING session_id

-- name: delete_unnamed_sessions
DELETE FROM sessions WHERE session_id = ANY (%(session)s)

-- name: append
-- The fence first: the rows are locked, in one order, so that two servers cannot wait for each other; what they say then
-- decides. Only what passed is written.
WITH given AS (
    SELECT * FROM unnest(
        %(session)s, %(after)s, %(epoch)s, %(grown)s, %(updated_at)s, %(head)s, %(head_checksum)s, %(settings)s,
        %(settings_checksum)s, %(is_pinned)s, %(is_unlisted)s, %(expires_at)s
    ) AS given (
        session_id, after, epoch, grown, updated_at, head, head_checksum, settings, settings_checksum, is_pinned,
        is_unlisted, expires_at
    )
), locked AS MATERIALIZED (
    SELECT session_id, seq, epoch FROM sessions WHERE session_id = ANY (%(session)s)
    ORDER BY session_id FOR NO KEY UPDATE
), passed AS MATERIALIZED (
    SELECT given.* FROM given JOIN locked USING (session_id) WHERE locked.seq = given.after AND locked.epoch <= given.epoch
), moved AS (
    UPDATE sessions SET
        seq = passed.after + passed.grown,
        epoch = passed.epoch,
        node = %(node)s,
        held_until = NULL,
        is_running = passed.head IS NULL,
        rest_seq = CASE WHEN passed.head IS NULL THEN sessions.rest_seq ELSE passed.after + passed.grown END,
        updated_at = coalesce(passed.updated_at, sessions.updated_at),
        head = coalesce(passed.head, sessions.head),
        head_checksum = coalesce(passed.head_checksum, sessions.head_checksum),
        settings = coalesce(passed.settings, sessions.settings),
        settings_checksum = coalesce(passed.settings_checksum, sessions.settings_checksum),
        is_pinned = CASE WHEN passed.settings IS NULL THEN sessions.is_pinned ELSE passed.is_pinned = 1 END,
        is_unlisted = CASE WHEN passed.head IS NULL THEN sessions.is_unlisted ELSE passed.is_unlisted = 1 END,
        expires_at = CASE WHEN passed.head IS NULL THEN sessions.expires_at ELSE passed.expires_at END
    FROM passed WHERE sessions.session_id = passed.session_id
), written AS (
    INSERT INTO events (session_id, seq, run_id, at, type, payload, checksum)
    SELECT given.* FROM unnest(
        %(event_session)s, %(event_seq)s, %(event_run)s, %(event_at)s, %(event_type)s, %(event_payload)s,
        %(event_checksum)s
    ) AS given (session_id, seq, run_id, at, type, payload, checksum) JOIN passed USING (session_id)
), closed AS (
    DELETE FROM pieces
    USING passed
    JOIN unnest(%(closed_session)s, %(closed_message)s, %(closed_block)s) AS given (session_id, message_id, block)
        USING (session_id)
    WHERE pieces.session_id = given.session_id
        AND pieces.message_id = given.message_id AND pieces.block = given.block
), opened AS (
    INSERT INTO pieces (session_id, after, place, message_id, block, kind, loop, text, checksum)
    SELECT given.* FROM unnest(
        %(piece_session)s, %(piece_after)s, %(piece_place)s, %(piece_message)s, %(piece_block)s, %(piece_kind)s,
        %(piece_loop)s, %(piece_text)s, %(piece_checksum)s
    ) AS given (session_id, after, place, message_id, block, kind, loop, text, checksum) JOIN passed USING (session_id)
), runs_begun AS (
    INSERT INTO runs (run_id, session_id, owner, first_seq)
    SELECT given.* FROM unnest(%(run)s, %(run_session)s, %(run_owner)s, %(run_seq)s)
        AS given (run_id, session_id, owner, first_seq) JOIN passed USING (session_id)
    ON CONFLICT (run_id) DO UPDATE SET first_seq = excluded.first_seq
), calls_made AS (
    INSERT INTO calls (session_id, digest)
    SELECT given.session_id, sha256(given.id) FROM unnest(%(call_session)s, %(call)s) AS given (session_id, id)
        JOIN passed USING (session_id)
    ON CONFLICT DO NOTHING
), messages_made AS (
    INSERT INTO messages (session_id, digest, seq)
    SELECT given.session_id, sha256(given.id), given.seq
    FROM unnest(%(message_session)s, %(message)s, %(message_seq)s) AS given (session_id, id, seq)
        JOIN passed USING (session_id)
    ON CONFLICT (session_id, digest) DO UPDATE SET seq = excluded.seq
)
SELECT session_id FROM passed

-- name: append_pieces
-- What each delta of a stream makes: pieces alone, in sessions that run. Their rows are locked and stay as they are.
WITH given AS (
    SELECT * FROM unnest(%(session)s, %(after)s, %(epoch)s) AS given (session_id, after, epoch)
), locked AS MATERIALIZED (
    SELECT session_id, seq, epoch, is_running FROM sessions WHERE session_id = ANY (%(session)s)
    ORDER BY session_id FOR NO KEY UPDATE
), passed AS MATERIALIZED (
    SELECT session_id FROM given JOIN locked USING (session_id)
    WHERE locked.seq = given.after AND locked.epoch = given.epoch AND locked.is_running
), opened AS (
    INSERT INTO pieces (session_id, after, place, message_id, block, kind, loop, text, checksum)
    SELECT given.* FROM unnest(
        %(piece_session)s, %(piece_after)s, %(piece_place)s, %(piece_message)s, %(piece_block)s, %(piece_kind)s,
        %(piece_loop)s, %(piece_text)s, %(piece_checksum)s
    ) AS given (session_id, after, place, message_id, block, kind, loop, text, checksum) JOIN passed USING (session_id)
)
SELECT session_id FROM passed

-- name: forget_idempotency_records
DELETE FROM once WHERE NOT lasts AND at < %(oldest)s

-- name: store_idempotency_record
INSERT INTO once (owner, key, fingerprint, session_id, run_id, at, lasts)
VALUES (%(owner)s, %(key)s, %(fingerprint)s, %(session)s, %(run)s, %(at)s, %(lasts)s)
ON CONFLICT (owner, sha256(key)) DO UPDATE SET
    key = excluded.key, fingerprint = excluded.fingerprint, session_id = excluded.session_id,
    run_id = excluded.run_id, at = excluded.at, lasts = excluded.lasts

-- name: delete
-- The session's row first: who appends waits for it, and finds it gone.
WITH gone AS (DELETE FROM sessions WHERE session_id = %(session)s RETURNING session_id),
    events_gone AS (DELETE FROM events WHERE session_id = %(session)s),
    pieces_gone AS (DELETE FROM pieces WHERE session_id = %(session)s),
    runs_gone AS (DELETE FROM runs WHERE session_id = %(session)s),
    calls_gone AS (DELETE FROM calls WHERE session_id = %(session)s),
    messages_gone AS (DELETE FROM messages WHERE session_id = %(session)s),
    names_gone AS (DELETE FROM names WHERE session_id = %(session)s),
    once_gone AS (DELETE FROM once WHERE session_id = %(session)s),
    shares_gone AS (DELETE FROM shares WHERE session_id = %(session)s),
    kept_gone AS (DELETE FROM kept WHERE session_id = %(session)s),
    indexed_gone AS (DELETE FROM search_sessions WHERE session_id = %(session)s),
    texts_gone AS (DELETE FROM search_texts WHERE session_id = %(session)s),
    pending_cleanups AS (
        INSERT INTO forgetting (session_id, agent)
        SELECT session_id, agent FROM gone, unnest(%(agent)s) AS given (agent)
        ON CONFLICT DO NOTHING
    )
SELECT session_id FROM gone

-- name: pending_cleanups
SELECT session_id, agent FROM forgetting

-- name: finish_cleanup
DELETE FROM forgetting WHERE session_id = %(session)s AND agent = %(agent)s RETURNING 1

-- name: keep
INSERT INTO kept (session_id, key, value, checksum)
SELECT %(session)s, key, value, checksum FROM unnest(%(key)s, %(value)s, %(checksum)s) AS given (key, value, checksum)
ON CONFLICT (session_id, key) DO UPDATE SET value = excluded.value, checksum = excluded.checksum

-- name: drop_kept
DELETE FROM kept WHERE session_id = %(session)s AND key = ANY (%(key)s)

-- name: kept
SELECT key, value, checksum FROM kept
WHERE session_id = %(session)s AND key >= %(below)s AND key <= %(up_to)s AND key > %(after)s ORDER BY key LIMIT %(limit)s

-- name: kept_size
SELECT coalesce(sum(length(value)), 0)::bigint FROM kept WHERE session_id = %(session)s

-- name: lock
SELECT 1 FROM sessions WHERE session_id = %(session)s FOR UPDATE

-- name: load
-- One statement, so that all of it is of one moment.
WITH found AS (SELECT * FROM sessions WHERE session_id = %(session)s)
SELECT 0 AS part, seq AS a, is_running::int::bigint AS b, quarantine AS c, '' AS d, settings_checksum AS e, '' AS f,
    convert_to(head, 'UTF8') AS g, convert_to(settings, 'UTF8') AS h, head_checksum AS checksum
FROM found
UNION ALL
SELECT 1, events.seq, events.at, events.run_id, '', 0, '', convert_to(events.payload, 'UTF8'), '', events.checksum
FROM found JOIN events ON events.session_id = found.session_id AND events.seq > found.rest_seq
WHERE found.is_running
UNION ALL
SELECT 2, pieces.after, pieces.place, pieces.message_id, pieces.kind, pieces.block, pieces.loop, pieces.text, '',
    pieces.checksum
FROM found JOIN pieces ON pieces.session_id = found.session_id
WHERE found.is_running
ORDER BY part, a, b

-- name: events
-- With the number of the session's last event, of the same moment, so that missing events are noticed.
SELECT sessions.seq, found.* FROM sessions LEFT JOIN LATERAL (
    SELECT seq, at, run_id, convert_to(payload, 'UTF8'), checksum FROM events
    WHERE session_id = %(session)s AND seq > %(after)s ORDER BY seq LIMIT %(limit)s
) AS found ON true
WHERE session_id = %(session)s

-- name: events_before
SELECT sessions.seq, found.* FROM sessions LEFT JOIN LATERAL (
    SELECT seq, at, run_id, convert_to(payload, 'UTF8'), checksum FROM events
    WHERE session_id = %(session)s AND seq < %(before)s ORDER BY seq DESC LIMIT %(limit)s
) AS found ON true
WHERE session_id = %(session)s

-- name: page
SELECT created_at, session_id, convert_to(head, 'UTF8') AS head, convert_to(settings, 'UTF8') AS settings, head_checksum,
    settings_checksum
FROM sessions WHERE owner = %(owner)s AND NOT is_unlisted
ORDER BY created_at DESC, session_id DESC LIMIT %(limit)s

-- name: page_from
SELECT created_at, session_id, convert_to(head, 'UTF8') AS head, convert_to(settings, 'UTF8') AS settings, head_checksum,
    settings_checksum
FROM sessions
WHERE owner = %(owner)s AND NOT is_unlisted AND (created_at, session_id) < (%(at)s, %(session)s)
ORDER BY created_at DESC, session_id DESC LIMIT %(limit)s

-- name: recent
-- The page is found in the index alone, so that the sessions that it skips are not read.
SELECT session_id, convert_to(head, 'UTF8') AS head, convert_to(settings, 'UTF8') AS settings, head_checksum,
    settings_checksum
FROM sessions WHERE session_id = ANY (ARRAY(
    SELECT session_id FROM sessions WHERE owner = %(owner)s AND NOT is_unlisted
    ORDER BY is_pinned DESC, updated_at DESC, session_id DESC LIMIT %(limit)s OFFSET %(offset)s
))
ORDER BY is_pinned DESC, updated_at DESC, session_id DESC

-- name: find_owner
SELECT owner FROM sessions WHERE session_id = %(session)s

-- name: count
SELECT coalesce(sum(count), 0)::bigint FROM session_counts WHERE owner = %(owner)s

-- name: matching
SELECT session_id FROM sessions WHERE owner = %(owner)s AND NOT is_unlisted AND session_id = ANY (%(sessions)s)
ORDER BY is_pinned DESC, updated_at DESC, session_id DESC

-- name: states
SELECT session_id, convert_to(head, 'UTF8') AS head, convert_to(settings, 'UTF8') AS settings, head_checksum,
    settings_checksum
FROM sessions WHERE session_id = ANY (%(sessions)s)
ORDER BY is_pinned DESC, updated_at DESC, session_id DESC

-- name: unfinished_sessions
SELECT session_id FROM sessions WHERE is_running

-- name: expired_sessions
SELECT session_id, owner FROM sessions WHERE expires_at <= %(by)s AND NOT is_running
ORDER BY expires_at LIMIT %(limit)s

-- name: idle_sessions
SELECT session_id, owner FROM sessions
WHERE NOT is_running AND updated_at <= %(by)s AND coalesce(owner = %(only)s::text, true)
    AND owner <> ALL (%(excluded)s)
ORDER BY updated_at, session_id LIMIT %(limit)s OFFSET %(skip)s

-- name: find_run
SELECT session_id, owner, first_seq FROM runs WHERE run_id = %(run)s

-- name: known_calls
SELECT given.place FROM unnest(%(id)s) WITH ORDINALITY AS given (id, place)
JOIN calls ON calls.session_id = %(session)s AND calls.digest = sha256(given.id)

-- name: find_messages
SELECT given.place, messages.seq FROM unnest(%(id)s) WITH ORDINALITY AS given (id, place)
JOIN messages ON messages.session_id = %(session)s AND messages.digest = sha256(given.id)

-- name: find_by_name
SELECT session_id FROM names WHERE owner = %(owner)s AND sha256(name) = sha256(%(name)s)

-- name: find_idempotency_record
SELECT fingerprint, session_id, run_id, at, lasts FROM once
WHERE owner = %(owner)s AND sha256(key) = sha256(%(key)s)
