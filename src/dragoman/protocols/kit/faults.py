"""What the errors of all doors have in common: bounded sentences, headers, and where a decoder found a fault. Pure."""

import re

from dragoman.core.refusals import LimitReached, Refused, Unauthenticated, Unavailable

ERROR_MESSAGE_LIMIT = 500
"""Characters of an error's sentence."""
DECODER_MESSAGE_LIMIT = 300
"""Characters of what a decoder says, which may hold the client's own words."""
_PATH_SUFFIX = re.compile(r" - at `\$\.?(.*)`$")
_MISSING_FIELD = re.compile(r"Object missing required field `(.*)`")


def shorten(message: str) -> str:
    """A sentence that may repeat what the client sent, which may be of any length."""
    return (
        message
        if len(message) <= ERROR_MESSAGE_LIMIT
        else f"{message[: ERROR_MESSAGE_LIMIT // 2]} … {message[-ERROR_MESSAGE_LIMIT // 2 :]}"
    )


def headers_of(refusal: Refused) -> dict[str, str]:
    """What stands in an answer's head: how to prove who one is, or when to come again."""
    match refusal:
        case Unauthenticated():
            return {"WWW-Authenticate": "Bearer"}
        case LimitReached() | Unavailable():
            return {"Retry-After": str(refusal.retry_after_s)}
        case _:
            return {}


def parse_validation_error(text: str, prefix: str = "") -> tuple[str, str]:
    """What msgspec says of a shape that is wrong, without the path in it; and the path of the field at fault.

    Args:
        words: its message.
        prefix: where in the body the value stood that was looked at.
    """
    text = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    at = _PATH_SUFFIX.search(text)
    message, path = (text[: at.start()], at[1]) if at else (text, "")
    message = message[:DECODER_MESSAGE_LIMIT]
    if missing := _MISSING_FIELD.fullmatch(message):
        return "this field is required", ".".join(filter(None, (prefix, path, missing[1])))
    return message, ".".join(filter(None, (prefix, path)))
