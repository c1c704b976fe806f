"""Blade's REST routes, one module for each resource."""
