"""The Agent API of AgentScope Runtime. `wire`, `translate` and `errors` are pure; `http` does the IO."""
