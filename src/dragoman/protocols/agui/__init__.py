"""AG-UI's standard endpoint. `decision` says what a run request does, `threads` does it; `http` reads the requests."""
