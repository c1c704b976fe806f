"""Errors name what the client sent, where the core names the inputs that were made of it. Pure."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from dragoman.core.content import AssistantMessage, SystemMessage, ToolMessage
from dragoman.core.refusals import Invalid

_CORE_PATH = re.compile(r"(?P<kind>\w+)\[(?P<index>\d+)\](?P<rest>.*)")
"""The path of a field in the core's inputs."""


@contextmanager
def paths_in_request(name: str = "messages", **inputs: Mapping[str, object]) -> Iterator[None]:
    """Replace the path of an error by that of the part of the request that it is about.

    Args:
        name: the member of the request that has all messages.
        inputs: the core's inputs by its name for them (`messages`, `answers`, `tools`), each by the path of the part of
            the request where it begins. A message of the agent may stand for several parts, so that only the path of
            the first is known.
    """
    try:
        yield
    except Invalid as error:
        match = _CORE_PATH.fullmatch(error.path)
        if match is not None and match["kind"] in inputs:
            path, item = list(inputs[match["kind"]].items())[int(match["index"])]
            is_exact = not isinstance(item, AssistantMessage | ToolMessage | SystemMessage)
            error.path = path + match["rest"] if is_exact else path
        elif error.path == "messages":
            error.path = name
        raise
