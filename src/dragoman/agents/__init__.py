"""Our own agents: the model loop, function agents, sub-agents, tools, MCP. They use `core` and `ports` only."""
