"""Services beside the sessions: API keys, idempotency, limits, memories, profiles, shares, uploads."""
