"""Upgrades: data of each release is kept in `releases/`, and every later commit must go on with it."""
