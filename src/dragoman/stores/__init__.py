"""Adapters of `ports` for storage. SQL and drivers are used here and nowhere else. No rules of the domain."""
