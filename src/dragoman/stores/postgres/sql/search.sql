-- name: is_listed
SELECT is_listed FROM search_users WHERE owner = %(owner)s

-- name: newest
-- Read from the beginning, as far as needed. Aggregates, so that each session is looked up as it is read.
SELECT session_id,
    (SELECT bool_or(position(%(text)s IN text) > 0) FROM search_texts WHERE search_texts.session_id = listed.session_id),
    (SELECT bool_or(position(%(text)s IN title) > 0) FROM search_sessions
     WHERE search_sessions.session_id = listed.session_id)
FROM sessions AS listed WHERE owner = %(owner)s AND NOT is_unlisted
ORDER BY is_pinned DESC, updated_at DESC, session_id DESC

-- name: candidate_texts
SELECT session_id, position(%(text)s IN text) > 0 FROM (
    SELECT session_id, text FROM search_texts WHERE grams @> %(grams)s::bigint[]::integer[] LIMIT %(limit)s
) AS candidates

-- name: candidate_titles
SELECT session_id, position(%(text)s IN title) > 0 FROM (
    SELECT session_id, title FROM search_sessions WHERE grams @> %(grams)s::bigint[]::integer[] LIMIT %(limit)s
) AS candidates

-- name: behind
-- A running session is noted when its run has ended.
WITH behind AS (
    SELECT session_id FROM search_behind WHERE owner = %(owner)s
    UNION
    SELECT session_id FROM sessions WHERE is_running AND owner = %(owner)s
)
SELECT session_id, coalesce(search_sessions.seq, 0), settings
FROM behind JOIN sessions USING (session_id) LEFT JOIN search_sessions USING (session_id)
WHERE NOT is_unlisted ORDER BY updated_at DESC

-- name: not_indexed
SELECT session_id, 0::bigint, settings FROM sessions WHERE owner = %(owner)s AND NOT is_unlisted
ORDER BY updated_at DESC

-- name: new_texts
-- Letters beyond ASCII have several forms in other cases: texts with such letters are all returned. Sessions are read in
-- the order in which they are given.
SELECT given.session_id, new.payload
FROM unnest(%(session)s, %(seq)s) AS given (session_id, seq) CROSS JOIN LATERAL (
    SELECT payload FROM events
    WHERE events.session_id = given.session_id AND events.seq > given.seq AND type IN ('message_added', 'block_closed')
        AND (octet_length(payload) > char_length(payload) OR position(%(text)s IN lower(payload COLLATE "C")) > 0)
    OFFSET 0
) AS new
LIMIT %(limit)s

-- name: add_user
INSERT INTO search_users (owner) VALUES (%(owner)s) ON CONFLICT DO NOTHING

-- name: list_sessions
-- Only when no transaction runs any more that may have changed a session without seeing the user's row.
WITH listed AS (
    UPDATE search_users SET is_listed = true
    WHERE owner = %(owner)s AND NOT is_listed AND pg_snapshot_xmin(pg_current_snapshot()) > since
    RETURNING owner
)
INSERT INTO search_behind (owner, session_id) SELECT owner, session_id FROM listed JOIN sessions USING (owner)
ON CONFLICT DO NOTHING

-- name: next_batch
SELECT session_id, coalesce(search_sessions.seq, 0), sessions.seq, settings
FROM search_behind LEFT JOIN sessions USING (session_id) LEFT JOIN search_sessions USING (session_id)
WHERE search_behind.owner = %(owner)s LIMIT %(limit)s

-- name: texts_to_index
SELECT given.session_id, new.seq, new.payload
FROM unnest(%(session)s, %(after)s, %(last)s) AS given (session_id, after, last) CROSS JOIN LATERAL (
    SELECT seq, payload FROM events
    WHERE events.session_id = given.session_id AND events.seq > given.after AND events.seq <= given.last
        AND type IN ('message_added', 'block_closed')
    ORDER BY events.seq LIMIT %(limit)s
) AS new

-- name: index_session
-- Nothing is written if another server was faster.
INSERT INTO search_sessions (session_id, seq, title, grams)
SELECT session_id, %(seq)s, %(title)s, %(grams)s::bigint[]::integer[] FROM sessions WHERE session_id = %(session)s
ON CONFLICT (session_id) DO UPDATE SET seq = excluded.seq, title = excluded.title, grams = excluded.grams
    WHERE search_sessions.seq = %(after)s
RETURNING 1

-- name: index_text
INSERT INTO search_texts (session_id, text, grams) VALUES (%(session)s, %(text)s, %(grams)s::bigint[]::integer[])

-- name: not_behind
-- The sessions' rows are locked, so that no commit that has not noted its session yet is overlooked.
WITH locked AS MATERIALIZED (
    SELECT session_id, rest_seq FROM sessions WHERE session_id = ANY (%(session)s) ORDER BY session_id FOR SHARE
), complete AS (
    SELECT given.session_id FROM unnest(%(session)s) AS given (session_id)
    LEFT JOIN locked USING (session_id) LEFT JOIN search_sessions USING (session_id)
    WHERE locked.session_id IS NULL OR search_sessions.seq >= locked.rest_seq
)
DELETE FROM search_behind USING complete
WHERE search_behind.owner = %(owner)s AND search_behind.session_id = complete.session_id
