"""Composition: reads the settings, builds stores, engine and protocols, and runs them in one or more processes."""
