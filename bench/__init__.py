"""Measures Dragoman against limit rows of its own: `python -m bench`."""
