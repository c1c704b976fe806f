"""A session's log as Blade's chats, turns and tool calls."""
