"""Logging: one pipeline, one line per event, and no secret in any of them, however it got there."""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from dragoman.engine.instrumentation.tracing import run_span
from dragoman.server import logging as server_logging
from dragoman.server.logging import MASK, Secrets, escape_control_characters

CANARY = "canary-7c1d9e"
KEY = f"sk-dragoman-{CANARY}-0123456789abcdefghijklmnopqrs"

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def out(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """The log output of a process. The logging configuration is restored afterwards."""
    monkeypatch.setattr(server_logging, "SECRETS", Secrets())
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:], level = before[0], before[1]
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


@pytest.fixture
def lines(out: io.StringIO) -> Lines:
    """Returns the JSON lines so far."""
    server_logging.configure_logging("json", "info", stream=out)
    return lambda: [json.loads(line) for line in out.getvalue().splitlines()]


# --- one pipeline -----------------------------------------------------------------------------------------------------


def test_a_line_is_one_json_object_with_time_level_event_and_facts(lines: Lines) -> None:
    structlog.get_logger("x").info("key made", name="laptop", count=3, scopes=["use"], at=None)
    (line,) = lines()
    assert line.pop("timestamp").endswith("Z")
    assert line == {"level": "info", "event": "key made", "name": "laptop", "count": 3, "scopes": ["use"], "at": None}


def test_lines_of_libraries_and_warnings_pass_through_the_same_pipeline(lines: Lines) -> None:
    logging.getLogger("uvicorn.error").warning("Invalid %s request", "HTTP")
    logging.getLogger("asyncio").error("Task was %s", "destroyed", exc_info=ValueError("lost"))
    logging.getLogger("some.library").info("not worth a line")
    mismatched = logging.LogRecord("some.library", logging.WARNING, "", 0, "100% wrong %d", ("arguments",), None)
    server_logging.StructlogHandler().handle(mismatched)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    logged = lines()
    assert [(line["level"], line["logger"], line["event"]) for line in logged[:3]] == [
        ("warning", "uvicorn.error", "Invalid HTTP request"),
        ("error", "asyncio", "Task was destroyed"),
        ("warning", "some.library", "100% wrong %d"),
    ]
    assert logged[1]["trace"] == "ValueError: lost"
    assert any("DeprecationWarning: old" in line["event"] for line in logged[3:]), "beside warnings of earlier tests"


def test_lines_below_the_level_are_not_logged(out: io.StringIO) -> None:
    server_logging.configure_logging("json", "warning", stream=out)
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["loud"]


def test_lines_inside_a_run_carry_its_ids_and_later_ones_do_not(lines: Lines) -> None:
    def run() -> None:
        with run_span("assistant", "s-1", "r-1"):
            structlog.get_logger().info("inside")
            logging.getLogger("library").warning("inside too")

    copy_context().run(run)  # every run's task has a context of its own
    structlog.get_logger().info("outside")
    assert [(line.get("session_id"), line.get("run_id")) for line in lines()] == [
        ("s-1", "r-1"),
        ("s-1", "r-1"),
        (None, None),
    ]


# --- secrets ----------------------------------------------------------------------------------------------------------


def fails(secret: str) -> None:
    password = secret  # the values of variables are never shown
    raise ValueError(f"login with {secret} failed, {len(password)} characters")


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_canary_in_every_place_that_may_hold_a_secret_is_in_no_line(
    out: io.StringIO, form: server_logging.Format
) -> None:
    server_logging.configure_logging(form, "debug", stream=out)
    log, library = structlog.get_logger(), logging.getLogger("library")
    log.info("by name", authorization=CANARY, api_key=CANARY, password=CANARY, otel_headers=CANARY, token=CANARY)
    log.info(
        "deeper", request={"headers": {"Authorization": CANARY, "cookie": [CANARY]}, "options": {"secret": CANARY}}
    )
    by_looks, by_value = f"by looks Bearer {CANARY} and {KEY}", f"by value hunter {CANARY}"
    token = f"eyJhbGciOiJFUzI1NiJ9.{CANARY}.c2lnbmF0dXJl"
    log.info(by_looks, header=f"bearer {CANARY}", url=f"https://u:{CANARY}@h/?q={KEY}")
    log.info("parameters", url=f"/x?access_token={CANARY}&key={CANARY}", text=f"Authorization: Basic {CANARY}")
    log.info("object", request=type("R", (), {"__str__": lambda _: f"<R key={KEY}>"})())
    library.warning("headers %s", {"authorization": f"Bearer {CANARY}"})
    library.warning("key %s and token %s", KEY, token)
    server_logging.SECRETS.add(f"hunter {CANARY}")
    log.info(by_value, deep=[{"x": (f"hunter {CANARY}",)}])
    try:
        fails(f"hunter {CANARY}")
    except ValueError:
        log.exception("run failed", run_id="r")
        library.exception("library failed")
    assert out.getvalue().count("\n") >= 10
    assert MASK in out.getvalue()
    assert CANARY not in out.getvalue()


def test_a_long_text_that_looks_like_a_token_again_and_again_is_read_once() -> None:
    long = "-eyJ" * 500_000  # with a search from each of them, this would take hours
    token = f"eyJhbGciOiJFUzI1NiJ9.{CANARY}.c2lnbmF0dXJl"
    assert server_logging.Secrets().mask(f"{long} {token}") == f"{long} ***"


def test_values_that_are_not_secret_stay_readable(lines: Lines) -> None:
    facts = {
        "input_tokens": 7,
        "key_id": "0191-x",
        "masked": "sk-dragoman-...abcd",
        "url": "http://127.0.0.1:8000/aap/v3",
        "has_secret": True,
        "sort": "key",
    }
    structlog.get_logger().info("the header Authorization must read: Bearer KEY", **facts)
    (line,) = lines()
    assert {name: line[name] for name in facts} == facts
    assert line["event"] == "the header Authorization must read: Bearer KEY"


def test_secrets_drops_the_oldest_and_ignores_short_values() -> None:
    secrets = Secrets()
    secrets.add("short")
    secrets.add("first secret")
    for number in range(Secrets.MAX_COUNT):
        secrets.add(f"secret number {number}")
    assert secrets.mask("short, first secret, secret number 7") == f"short, first secret, {MASK}"


def test_a_secret_that_begins_with_another_is_masked_whole() -> None:
    secrets = Secrets()
    secrets.add("hunter")
    secrets.add("hunter2hunter2")
    assert secrets.mask("hunter2hunter2") == MASK


# --- characters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "console"])
@given(st.text())
def test_any_event_is_one_line_without_control_characters(form: server_logging.Format, text: str) -> None:
    out = io.StringIO()
    server_logging.configure_logging(form, "info", stream=out)
    try:
        structlog.get_logger().info(text, fact=text, deep={text: [text]})
    finally:
        structlog.reset_defaults()
    assert out.getvalue().endswith("\n")
    assert [
        each for each in out.getvalue()[:-1] if ord(each) < 32 or 0x7F <= ord(each) <= 0x9F or each in "\u2028\u202e"
    ] == []


def test_a_log_line_cannot_be_forged(out: io.StringIO) -> None:
    server_logging.configure_logging("console", "info", stream=out)
    forged = "x\n00:00:00.000 info    all is well\x1b[2K\u202e"
    try:
        raise ValueError(forged)
    except ValueError:
        structlog.get_logger().exception(forged, fact=forged)
    first, *rest = out.getvalue().splitlines()
    assert first.count("\\n") == 2
    assert "\x1b" not in out.getvalue()
    assert "\u202e" not in out.getvalue()
    assert all(line.startswith("    ") for line in rest)


def test_readable_text_stays_as_it_is_and_long_text_is_cut(lines: Lines) -> None:
    assert escape_control_characters("Grüße, 你好 🧑 “x”\t") == "Grüße, 你好 🧑 “x”\\t"
    structlog.get_logger().info("long", text="a" * 1_000_000)
    assert len(lines()[0]["text"]) < 10_000
