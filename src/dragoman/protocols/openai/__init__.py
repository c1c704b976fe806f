"""OpenAI's API: Responses, Conversations, Models and Chat Completions. `http` and `runs` do the IO."""
