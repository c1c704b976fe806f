"""AAP v3. `wire`, `translate` and `errors` are pure; `http` and `streams` do the IO."""
