"""Adapters to identity providers: their signing keys, and the tokens that they issue."""
