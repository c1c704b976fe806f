"""Lone surrogates in JSON text: programs in JavaScript send them when they cut a string inside a character. Pure."""

import re

_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.DOTALL)
"""An escape sequence of a JSON string; group 1 is a lone surrogate."""


def replace_lone_surrogates(text: bytes) -> bytes:
    """Replace each escaped lone surrogate of a JSON text by the escape of U+FFFD, which has the same length."""
    return _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], text)
