-- name: add
INSERT INTO memories (
    "user", type, content, skill_name, record_type, scope, owner, topic, mem0_id, write_reason, source_session,
    created_at, hit_count, disabled, searched
) VALUES (
    %(user)s, %(type)s, %(content)s, %(skill_name)s, %(record_type)s, %(scope)s, %(owner)s, %(topic)s, %(mem0_id)s,
    %(write_reason)s, %(source_session)s, %(created_at)s, %(hit_count)s, %(disabled)s, %(searched)s
) RETURNING id

-- name: count
SELECT count(*) FROM memories WHERE "user" = %(user)s

-- name: supersede
UPDATE memories SET superseded_by = %(by)s WHERE id = %(id)s

-- name: lock_memory
SELECT id FROM memories WHERE "user" = %(user)s AND id = %(id)s FOR NO KEY UPDATE

-- name: get
SELECT * FROM memories WHERE "user" = %(user)s AND id = ANY (%(ids)s) ORDER BY id DESC

-- name: page
-- What was not asked for is null. The count is of the same moment as the page.
WITH found AS (
    SELECT id FROM memories WHERE "user" = %(user)s
        AND (%(type)s::text IS NULL OR type = %(type)s)
        AND (%(skill_name)s::text IS NULL OR skill_name = %(skill_name)s)
        AND (%(record_type)s::text IS NULL OR record_type = %(record_type)s)
        AND (%(scope)s::text IS NULL OR scope = %(scope)s)
        AND (%(owner)s::text IS NULL OR owner = %(owner)s)
        AND (%(topic)s::text IS NULL OR topic = %(topic)s)
        AND CASE %(status)s::text
            WHEN 'enabled' THEN NOT disabled AND superseded_by IS NULL
            WHEN 'disabled' THEN disabled
            WHEN 'superseded' THEN superseded_by IS NOT NULL
            ELSE true
        END
        AND (%(keyword)s::text IS NULL OR position(%(keyword)s IN searched) > 0)
)
SELECT total.count, memories.* FROM (SELECT count(*) FROM found) AS total
LEFT JOIN (SELECT id FROM found ORDER BY id DESC LIMIT %(limit)s OFFSET %(offset)s) AS page ON true
LEFT JOIN memories USING (id)
ORDER BY id DESC

-- name: put
UPDATE memories SET
    type = %(type)s, content = %(content)s, skill_name = %(skill_name)s, record_type = %(record_type)s,
    scope = %(scope)s, owner = %(owner)s, topic = %(topic)s, mem0_id = %(mem0_id)s, write_reason = %(write_reason)s,
    updated_at = %(updated_at)s, disabled = %(disabled)s, searched = %(searched)s
WHERE "user" = %(user)s AND id = %(id)s AND updated_at IS NOT DISTINCT FROM %(expected)s

-- name: set_disabled
UPDATE memories SET disabled = %(disabled)s, updated_at = %(at)s
WHERE "user" = %(user)s AND disabled <> %(disabled)s AND id = ANY (%(ids)s)

-- name: remove
DELETE FROM memories WHERE "user" = %(user)s AND id = ANY (%(ids)s)

-- name: newest
SELECT * FROM memories WHERE "user" = %(user)s AND type = %(type)s AND NOT disabled AND superseded_by IS NULL
ORDER BY id DESC LIMIT %(limit)s

-- name: matching
-- Those that have most of the trigrams; a user's memories are few enough to look at each.
SELECT memories.* FROM memories CROSS JOIN LATERAL (
    SELECT count(*) AS shared FROM unnest(%(trigrams)s) AS searched_for (trigram) WHERE position(trigram IN searched) > 0
) AS fit
WHERE "user" = %(user)s AND type = 'experience' AND NOT disabled AND superseded_by IS NULL AND shared > 0
ORDER BY shared DESC, id DESC LIMIT %(limit)s

-- name: forget_hits
DELETE FROM memory_hits WHERE at < %(oldest)s

-- name: note_hit
INSERT INTO memory_hits (run_id, at) VALUES (%(run)s, %(at)s) ON CONFLICT DO NOTHING

-- name: count_hits
UPDATE memories SET hit_count = hit_count + 1, last_hit_at = %(at)s WHERE "user" = %(user)s AND id = ANY (%(ids)s)
