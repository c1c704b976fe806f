"""Why a database is not opened, whichever it is."""


class StoreInUse(Exception):
    """Another server has it."""


class WrongVersion(Exception):
    """The database was written by a newer release, or is none of ours."""
