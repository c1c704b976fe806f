-- name: count
SELECT count(*) FROM sessions WHERE quarantine IS NULL

-- name: sessions
SELECT sessions.session_id, sessions.owner, names.name FROM sessions LEFT JOIN names USING (session_id)
WHERE session_id > %(after)s AND quarantine IS NULL ORDER BY session_id LIMIT %(limit)s

-- name: idempotency_records
SELECT owner, key, fingerprint, session_id, run_id, at, lasts FROM once WHERE session_id = ANY (%(sessions)s)
ORDER BY at, key

-- name: quarantine
UPDATE sessions SET quarantine = %(reason)s, is_unlisted = true, is_running = false WHERE session_id = %(session)s

-- name: memories
SELECT * FROM memories WHERE id > %(after)s ORDER BY id LIMIT %(limit)s

-- name: restore
INSERT INTO memories (
    id, "user", type, content, skill_name, record_type, scope, owner, topic, mem0_id, write_reason, source_session,
    superseded_by, created_at, updated_at, hit_count, last_hit_at, disabled, searched
) VALUES (
    %(id)s, %(user)s, %(type)s, %(content)s, %(skill_name)s, %(record_type)s, %(scope)s, %(owner)s, %(topic)s,
    %(mem0_id)s, %(write_reason)s, %(source_session)s, %(superseded_by)s, %(created_at)s, %(updated_at)s,
    %(hit_count)s, %(last_hit_at)s, %(disabled)s, %(searched)s
)

-- name: move_ids
SELECT setval(pg_get_serial_sequence('memories', 'id'), greatest(%(last)s, (SELECT max(id) FROM memories)))

-- name: shares
SELECT digest, owner, session_id, created_at, expires_at FROM shares ORDER BY digest
