"""Reasons why a database is not opened, common to all databases."""


class StoreInUse(Exception):
    """Another server uses the database."""


class WrongVersion(Exception):
    """The database was written by a newer release, or by another program."""
