"""Errors in the history with which a client begins a session name what the client sent. Pure."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from dragoman.core.content import Message, UserMessage
from dragoman.core.refusals import Invalid

_SEED_PATH = re.compile(r"messages\[(?P<index>\d+)\](?P<rest>.*)")
"""The path of a field in the core's seeds."""


@contextmanager
def translated_seed_errors(seeds: Mapping[str, Message], name: str = "messages") -> Iterator[None]:
    """Name the parts of the request in errors, where the core names the messages that they became.

    Args:
        seeds: the messages, each by the path of the part of the request where it begins. A message of the agent may
            stand for several parts, so that only the path of the first is known.
        name: the member of the request that has all of them.
    """
    try:
        yield
    except Invalid as error:
        if (match := _SEED_PATH.fullmatch(error.path)) is not None:
            path, seed = list(seeds.items())[int(match["index"])]
            error.path = path + match["rest"] if isinstance(seed, UserMessage) else path
        elif error.path == "messages":
            error.path = name
        raise
