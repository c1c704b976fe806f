"""`dragoman chat`, `sessions` and `init`: a user interface on `client`. Imports nothing of the server."""
