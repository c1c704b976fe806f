"""AG-UI's standard endpoint. `wire`, `translate` and `errors` are pure; `http` and `streams` do the IO."""
