"""What every database's schema has in common: it is from this release, or is brought up to it, or is refused."""


class WrongVersion(Exception):
    """The database was written by a newer release, or is none of ours."""
