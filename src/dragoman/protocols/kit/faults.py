"""What the errors of all doors have in common: bounded sentences, headers, and where a decoder found a fault. Pure."""

import re

from dragoman.core.refusals import Exhausted, Refused, Unauthenticated, Unavailable

SENTENCE = 500
"""Characters of an error's sentence."""
DECODERS_WORDS = 300
"""Characters of what a decoder says, which may hold the client's own words."""
_AT = re.compile(r" - at `\$\.?(.*)`$")
_MISSING = re.compile(r"Object missing required field `(.*)`")


def shortened(sentence: str) -> str:
    """A sentence that may repeat what the client sent, which may be of any length."""
    return sentence if len(sentence) <= SENTENCE else f"{sentence[: SENTENCE // 2]} … {sentence[-SENTENCE // 2 :]}"


def headers_of(refusal: Refused) -> dict[str, str]:
    """What stands in an answer's head: how to prove who one is, or when to come again."""
    match refusal:
        case Unauthenticated():
            return {"WWW-Authenticate": "Bearer"}
        case Exhausted() | Unavailable():
            return {"Retry-After": str(refusal.retry_after_s)}
        case _:
            return {}


def placed(words: str, prefix: str = "") -> tuple[str, str]:
    """What msgspec says of a shape that is wrong, without the path in it; and the path of the field at fault.

    Args:
        words: its message.
        prefix: where in the body the value stood that was looked at.
    """
    words = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in words)
    at = _AT.search(words)
    message, path = (words[: at.start()], at[1]) if at else (words, "")
    message = message[:DECODERS_WORDS]
    if missing := _MISSING.fullmatch(message):
        return "this field is required", ".".join(filter(None, (prefix, path, missing[1])))
    return message, ".".join(filter(None, (prefix, path)))
