"""SQLite: all stores of one server, written by one thread."""
