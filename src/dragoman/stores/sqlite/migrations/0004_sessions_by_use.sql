-- Lists of sessions in the order of their use: pinned ones first, then those changed last.

CREATE INDEX sessions_by_use
    ON sessions (owner, ifnull(json_extract(settings, '$.pinned'), 0) DESC, updated_at DESC, session_id DESC);
