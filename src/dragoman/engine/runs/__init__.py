"""Executes runs: input, agent, tool calls, recovery. One run has write access to a session at a time."""
