-- The keys in the data folders of all servers of this database, by file name: a digest that tells keys apart.
CREATE TABLE key_fingerprints (
    name        text COLLATE "C" PRIMARY KEY,
    fingerprint text NOT NULL
);
