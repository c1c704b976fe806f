"""The `dragoman` command: parses arguments and calls `server`, `terminal` or `client`. No logic of its own."""
