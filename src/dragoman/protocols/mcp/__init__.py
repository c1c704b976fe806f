"""The Model Context Protocol: each agent is a tool of other agents. Uses no MCP library and no other protocol."""
