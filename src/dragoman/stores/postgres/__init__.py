"""PostgreSQL: all stores of an installation with one or more servers."""
