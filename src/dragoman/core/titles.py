"""The title of a session that has none: the beginning of its first message, as people would read it. Pure."""

import re

from dragoman.core.content import Json, is_too_deep
from dragoman.core.json_schema import parse_json

MAX_LENGTH = 40
"""Characters of a title, with the sign for what was left out."""
_CONSIDERED_CHARS = 400
_LINE_MARKUP = re.compile(
    r"^[ \t]*(?:(?:```|~~~).*$|#{1,6}[ \t]|>|[-*+][ \t](?:\[[ xX]\][ \t])?|\d{1,9}[.)][ \t]"
    r"|[-*_= \t]{3,}$|[|: \t-]{3,}$)",
    re.MULTILINE,
)
"""Fences of code, headings, quotes, list items, rules, and the second line of a table."""
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)")
_CODE = re.compile(r"`+([^`\n]+)`+")
_EMPHASIS = re.compile(r"(?<!\w)([*_~]{1,3})(?=\S)([^\n]+?)(?<=\S)\1(?!\w)")


def title_from(text: str) -> str:
    """Return at most 40 characters: without Markdown, cut between words. Of JSON it is the first sentence in it."""
    words = (_first_sentence(text) or text)[:_CONSIDERED_CHARS]
    for pattern, kept in ((_LINE_MARKUP, ""), (_LINK, r"\1"), (_CODE, r"\1"), (_EMPHASIS, r"\2")):
        words = pattern.sub(kept, words)
    return _cut(" ".join(words.split()) or " ".join(text[:_CONSIDERED_CHARS].split()))


def _cut(words: str) -> str:
    if len(words) <= MAX_LENGTH:
        return words
    beginning, after = words[: MAX_LENGTH - 1], words[MAX_LENGTH - 1]
    if after != " " and " " in beginning[MAX_LENGTH // 2 :]:  # texts without spaces are cut where they are
        beginning = beginning[: beginning.rindex(" ")]
    return beginning.rstrip(" ,;:.") + "…"


def _first_sentence(text: str) -> str:
    """Return the first text with several words in a JSON object or array, else its first text."""
    if text.lstrip()[:1] not in ("{", "["):
        return ""
    try:
        value = parse_json(text)
    except ValueError:
        return ""
    texts = [] if is_too_deep(value) else _texts_in(value)
    return next((each for each in texts if " " in each.strip()), texts[0] if texts else "")


def _texts_in(value: Json) -> list[str]:
    match value:
        case str():
            return [value] if value.strip() else []
        case list():
            return [text for each in value for text in _texts_in(each)]
        case dict():
            return [text for each in value.values() for text in _texts_in(each)]
        case _:
            return []
