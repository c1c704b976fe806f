-- name: put
INSERT INTO blobs (name, content) VALUES (%(name)s, %(content)s)
ON CONFLICT (name) DO UPDATE SET content = excluded.content

-- name: get
SELECT content FROM blobs WHERE name = %(name)s

-- name: delete
DELETE FROM blobs WHERE name = %(name)s OR (name > %(first)s AND name < %(last)s)

-- name: names
SELECT name FROM blobs ORDER BY name

-- name: names_below
SELECT name FROM blobs WHERE name > %(first)s AND name < %(last)s ORDER BY name
