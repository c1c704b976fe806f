"""Nearly valid requests: part of a valid one is removed, doubled, of the wrong type, too deep or unusual."""

import json
import random
from collections.abc import Callable
from typing import Any

Json = Any

ODD_VALUES: tuple[Json, ...] = (
    None, True, False, 0, -1, 1.5, 1e308, 2**63, -(2**64), "", " ", "\x00", "\u202e", "𝄞", "é" * 300, "***",
    "../../etc/passwd", [], {}, [[]], [None], {"": None}, {"__proto__": {"x": 1}}, {"$ref": "http://127.0.0.1:1/x"},
    "a" * 5000,
)  # fmt: skip
RAW = (
    b"",
    b"{",
    b"[",
    b"nul",
    b'"',
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"{}{}",
    b"[" * 20_000,
    b'{"a":' * 5_000,
    b"1e9999",
)
METHODS = ("GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD", "TRACE", "BREW")
SEGMENTS = (
    "meta",
    "sessions",
    "turns",
    "history",
    "events",
    "",
    ".",
    "..",
    "%2e%2e",
    "%2f",
    "x" * 300,
    "é",
    "a%00b",
    "null",
)


def mutated(rng: random.Random, body: Json) -> bytes:
    """A body after one to three changes, as bytes."""
    if rng.random() < 0.05:
        return rng.choice(RAW)
    for _ in range(rng.randint(1, 3)):
        body = _changed(rng, body)
    raw = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.05:
        place = rng.randrange(len(raw) + 1)
        raw = raw[:place] + bytes([rng.randrange(256)]) + raw[place + rng.randint(0, 1) :]
    return raw


def path(rng: random.Random, known: str) -> str:
    """A path that may lead anywhere, except to an endless stream."""
    parts = [rng.choice((*SEGMENTS, known)) for _ in range(rng.randint(0, 4))]
    target = "/" + "/".join(parts)
    if rng.random() < 0.5:
        target += "?" + rng.choice(
            ("type=full", "type=", "limit=0", "limit=9999999999999", "after=x", "stream=none", "turn=1")
        )
    return target


def _changed(rng: random.Random, value: Json) -> Json:
    """The value with one change somewhere inside it."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        return _in_object(rng, value, key)
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        changes: tuple[Callable[[], Json], ...] = (
            lambda: [*value[:place], _changed(rng, value[place]), *value[place + 1 :]],
            lambda: [*value[:place], *value[place + 1 :]],
            lambda: [*value, value[place]],
            lambda: value * 3,
        )
        return rng.choices(changes, (6, 1, 1, 1))[0]()
    return _random_value(rng)


def _in_object(rng: random.Random, value: dict[str, Json], key: str) -> Json:
    changes: tuple[Callable[[], Json], ...] = (
        lambda: {**value, key: _changed(rng, value[key])},
        lambda: {name: each for name, each in value.items() if name != key},
        lambda: {**value, rng.choice(("x", key.upper(), "role", "type", "_meta")): _random_value(rng)},
        lambda: {**value, key: _random_value(rng)},
    )
    return rng.choices(changes, (6, 1, 1, 1))[0]()


def _random_value(rng: random.Random) -> Json:
    odd = rng.choice(ODD_VALUES)
    if rng.random() < 0.02:
        for _ in range(rng.choice((50, 200, 900))):
            odd = [odd]
    return odd
