-- name: add_key
INSERT INTO keys (key_id, digest, name, created_at, last_used_at, body)
VALUES (%(key)s, %(digest)s, %(name)s, %(created_at)s, %(last_used_at)s, %(body)s)

-- name: count_keys
SELECT count(*) FROM keys WHERE body::jsonb ->> 'user' = %(user)s

-- name: lock_limit
-- Until the end of the transaction: who counts, to insert only up to a limit, must not overlap with others who do.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' limit of ' || %(what)s, 0))

-- name: keys
SELECT name, last_used_at, body FROM keys ORDER BY created_at, key_id

-- name: remove_key
DELETE FROM keys WHERE key_id = %(key)s

-- name: rename_key
UPDATE keys SET name = %(name)s WHERE key_id = %(key)s

-- name: change_key
-- Only these members, because another server may be changing others.
UPDATE keys SET body = (body::jsonb || %(changes)s::jsonb)::text, digest = coalesce(%(digest)s, digest)
WHERE key_id = %(key)s

-- name: can_use_peppers
SELECT NOT EXISTS (SELECT FROM nodes WHERE until > now() AND NOT knows_peppers)

-- name: touch_keys
-- The later time counts, whoever of several servers tells it last.
UPDATE keys SET last_used_at = greatest(last_used_at, given.at)
FROM unnest(%(key)s, %(at)s) AS given (key_id, at) WHERE keys.key_id = given.key_id

-- name: add_tokens
INSERT INTO token_usage (holder, period, tokens)
SELECT * FROM unnest(%(holder)s, %(period)s, %(tokens)s)
ON CONFLICT (holder, period) DO UPDATE SET tokens = token_usage.tokens + excluded.tokens
RETURNING holder, period, tokens

-- name: tokens
SELECT coalesce(tokens, 0) FROM unnest(%(holder)s, %(period)s) WITH ORDINALITY AS given (holder, period, place)
LEFT JOIN token_usage USING (holder, period) ORDER BY place

-- name: all_tokens
SELECT holder, period, tokens FROM token_usage ORDER BY holder, period

-- name: forget_tokens
DELETE FROM token_usage WHERE period < %(before)s

-- name: profiles
SELECT body FROM profiles ORDER BY "user"

-- name: put_profile
INSERT INTO profiles ("user", body) VALUES (%(user)s, %(body)s) ON CONFLICT ("user") DO UPDATE SET body = excluded.body

-- name: add_share
INSERT INTO shares (digest, owner, session_id, created_at, expires_at)
VALUES (%(digest)s, %(owner)s, %(session)s, %(created_at)s, %(expires_at)s)

-- name: count_shares
SELECT count(*) FROM shares WHERE session_id = %(session)s

-- name: forget_shares
DELETE FROM shares WHERE expires_at <= %(now)s

-- name: share
SELECT digest, owner, session_id, created_at, expires_at FROM shares WHERE digest = %(digest)s

-- name: shares_of_session
SELECT digest, owner, session_id, created_at, expires_at FROM shares WHERE session_id = %(session)s
ORDER BY created_at DESC, digest LIMIT %(limit)s

-- name: remove_share
DELETE FROM shares WHERE session_id = %(session)s AND digest = %(digest)s

-- name: register_fingerprint
INSERT INTO key_fingerprints (name, fingerprint) VALUES (%(name)s, %(fingerprint)s) ON CONFLICT DO NOTHING

-- name: replace_fingerprint
INSERT INTO key_fingerprints (name, fingerprint) VALUES (%(name)s, %(fingerprint)s)
ON CONFLICT (name) DO UPDATE SET fingerprint = excluded.fingerprint

-- name: fingerprint
SELECT fingerprint FROM key_fingerprints WHERE name = %(name)s

-- name: add_audit
INSERT INTO audit (entry_id, "user", action, body) VALUES (%(entry)s, %(user)s, %(action)s, %(body)s)

-- name: audit
SELECT body FROM audit
WHERE (%(before)s::text IS NULL OR entry_id < %(before)s)
  AND (%(user)s::text IS NULL OR "user" = %(user)s)
  AND (%(action)s::text IS NULL OR action = %(action)s)
ORDER BY entry_id DESC LIMIT %(limit)s
