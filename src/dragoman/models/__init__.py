"""Adapters of `ports` for language models, and the registry that finds one by name. No rules of the domain."""
