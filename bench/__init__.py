"""Measures Dragoman against baseline servers: `python -m bench`."""
