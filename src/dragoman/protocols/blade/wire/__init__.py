"""Blade's wire types. Pure: no server, no clock, no storage."""
