-- name: put
INSERT INTO blobs (name, content) VALUES (%(name)s, %(content)s)
ON CONFLICT (name) DO UPDATE SET content = excluded.content

-- name: get
SELECT content FROM blobs WHERE name = %(name)s

-- name: delete
-- Names compare by their bytes, so that all that begin with a folder's name lie between two others.
DELETE FROM blobs WHERE name = %(name)s OR (name > %(first)s AND name < %(last)s)

-- name: names
SELECT name FROM blobs ORDER BY name
