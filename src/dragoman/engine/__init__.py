"""Runs agents and stores what they do. Knows stores, buses and models through `ports` only, and no protocol."""
