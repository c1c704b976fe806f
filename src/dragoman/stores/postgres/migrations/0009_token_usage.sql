-- A counter of tokens for each user or key with a budget, and day or month.

CREATE TABLE token_usage (
    holder text COLLATE "C" NOT NULL,
    period text COLLATE "C" NOT NULL,
    tokens bigint NOT NULL,
    PRIMARY KEY (holder, period)
);
