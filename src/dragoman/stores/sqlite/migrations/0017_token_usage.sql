-- Token budgets: the limits of keys and users (0 or NULL: none of their own), and a counter for each holder and period.

ALTER TABLE keys ADD COLUMN tokens_per_day INTEGER NOT NULL DEFAULT 0;
ALTER TABLE keys ADD COLUMN tokens_per_month INTEGER NOT NULL DEFAULT 0;

ALTER TABLE profiles ADD COLUMN tokens_per_day INTEGER;
ALTER TABLE profiles ADD COLUMN tokens_per_month INTEGER;

CREATE TABLE token_usage (
    holder TEXT NOT NULL,
    period TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    PRIMARY KEY (holder, period)
) WITHOUT ROWID;
