"""Logging: one pipeline for our lines and the libraries', to stderr, without secrets and control characters.

Secrets are masked in three ways: by the name of their field, by pattern (`Bearer …`, `sk-…`), and by value, for values
registered with `Secrets` (secret options of agents). The last keeps a user's password out of the traceback when a tool
raises an exception that quotes it.
"""

import logging
import re
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TextIO

import msgspec
import structlog
from structlog.types import EventDict, Processor, WrappedLogger

Format = Literal["auto", "console", "json"]
Level = Literal["debug", "info", "warning", "error"]

MASK = "***"
SECRET_FIELD_NAMES = re.compile(
    r"(authorization|cookie|password|passwd|secret|credential|api_?key|private_?key|(^|_)token$|(^|_)headers$)",
    re.IGNORECASE,
)
"""Names of fields whose whole value is masked. `tokens` is not among them: it is a count."""
SECRET_PATTERNS = re.compile(
    r"(?P<before>authorization[\"']*\s*[:=]\s*[\"']*\w+\s+|\bbearer\s+(?=\S{8})|\b(api_?key|access_token|key|token)=)[^\s\"'&]+"
    r"|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}"  # from the start of a word, so that a long one is read once
    r"|\b(sk|pk|rk|ghp|gho|xox[abp])[-_][\w-]{16,}"
    r"|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)",
    re.IGNORECASE,
)
"""Secrets in text: headers and parameters that carry one, tokens, keys with well-known prefixes, passwords in URLs."""
UNSAFE_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
"""Control characters, and characters that reorder or hide their neighbours."""
MAX_DEPTH = 6
MAX_TEXT_CHARS = 8192
"""Longer texts are cut; tracebacks are not."""


class Secrets:
    """Values that must not be logged. When there are too many, the oldest are dropped."""

    MIN_CHARS = 6
    """Shorter values are ignored: masking them would hit ordinary words."""
    MAX_COUNT = 2048

    def __init__(self) -> None:
        self._values: OrderedDict[str, None] = OrderedDict()
        self._pattern: re.Pattern[str] | None = None

    def add(self, value: str) -> None:
        """Mask this value in all further lines."""
        if len(value) < self.MIN_CHARS or value in self._values:
            return
        self._values[value] = None
        if len(self._values) > self.MAX_COUNT:
            self._values.popitem(last=False)
        self._pattern = None

    def mask(self, text: str) -> str:
        """Return the text with all secrets masked."""
        if self._values:
            if self._pattern is None:
                longest_first = sorted(self._values, key=len, reverse=True)
                self._pattern = re.compile("|".join(map(re.escape, longest_first)))
            text = self._pattern.sub(MASK, text)
        return SECRET_PATTERNS.sub(lambda match: (match["before"] or "") + MASK, text)


SECRETS = Secrets()
"""The registered secrets of this process."""


def configure_logging(format: Format = "auto", level: Level = "info", *, stream: TextIO | None = None) -> None:  # noqa: A002
    """Send all logs of this process through one pipeline.

    Args:
        format: `auto` is `console` in a terminal and `json` elsewhere.
        level: the lowest level that is logged; for libraries at least `warning`.
        stream: the output; defaults to stderr.
    """
    out = sys.stderr if stream is None else stream
    number = logging.getLevelNamesMapping()[level.upper()]
    is_console = format == "console" or (format == "auto" and out.isatty())
    last: Processor = ConsoleRenderer(has_colours=out.isatty()) if is_console else render_json
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            add_trace,
            sanitize_event,
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(out),
    )
    root = logging.getLogger()
    root.handlers[:] = [StructlogHandler()]
    root.setLevel(max(number, logging.WARNING))
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = []
        logger.propagate = True
    logging.captureWarnings(capture=True)


def log_worker(number: int) -> None:
    """Add a worker's number to each line of this process."""

    def add_worker(_logger: object, _method: str, event: EventDict) -> EventDict:
        event.setdefault("worker", number)
        return event

    structlog.configure(processors=[add_worker, *structlog.get_config()["processors"]])


@contextmanager
def logging_warnings() -> Iterator[None]:
    """Log only warnings and errors, on stderr, until the block is left: for programs that configure no logging.

    By itself, structlog prints every line for debugging on standard output.
    """
    if structlog.is_configured():
        yield
        return
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
    try:
        yield
    finally:
        structlog.reset_defaults()


class StructlogHandler(logging.Handler):
    """Passes the log records of libraries to the pipeline."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record."""
        try:
            text = record.getMessage()
        except (TypeError, ValueError):  # the library's arguments do not fit its format
            text = str(record.msg)
        log = structlog.get_logger(record.name)
        log.log(record.levelno, text, logger=record.name, exc_info=record.exc_info or None)


# --- the steps of the pipeline ----------------------------------------------------------------------------------------


def add_trace(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Replace `exc_info` by the traceback's text: frames and messages, never the values of variables."""
    error = event.pop("exc_info", None)
    if error is True:
        error = sys.exc_info()
    if isinstance(error, tuple):
        error = error[1]
    if isinstance(error, BaseException):
        event["trace"] = "".join(traceback.format_exception(error)).rstrip()
    return event


def sanitize_event(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Remove secrets and control characters from all values, however deep. A traceback keeps its line breaks."""
    trace = event.pop("trace", None)
    cleaned: EventDict = {_sanitize_text(name): sanitize_value(name, value) for name, value in event.items()}
    if isinstance(trace, str):
        cleaned["trace"] = "\n".join(map(escape_control_characters, SECRETS.mask(trace).split("\n")))
    return cleaned


def sanitize_value(name: str, value: Any, depth: int = 0) -> Any:  # noqa: ANN401  # whatever was logged
    """Return what may be logged of a value under this name."""
    if value is None or isinstance(value, bool):
        return value
    if SECRET_FIELD_NAMES.search(name):
        return MASK
    if isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return _sanitize_text(value)
    if depth >= MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        return {_sanitize_text(str(key)): sanitize_value(str(key), each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [sanitize_value("", each, depth + 1) for each in value]
    return _sanitize_text(str(value))


def _sanitize_text(text: str) -> str:
    if len(text) > MAX_TEXT_CHARS:
        text = f"{text[:MAX_TEXT_CHARS]}… ({len(text)} characters)"
    return escape_control_characters(SECRETS.mask(text))


def escape_control_characters(text: str) -> str:
    """Escape everything that could end the line, move a terminal's cursor or reorder the text."""
    return UNSAFE_CHARACTERS.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)


def render_json(_: WrappedLogger, __: str, event: EventDict) -> str:
    """Render an event as one line of JSON."""
    first = {name: event.pop(name, None) for name in ("timestamp", "level", "event")}
    return msgspec.json.encode({**first, **event}).decode()


class ConsoleRenderer:
    """Renders an event as a line for people. The traceback follows, indented so that it cannot imitate a log line."""

    COLOURS = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "31;1"}  # noqa: RUF012

    def __init__(self, *, has_colours: bool) -> None:
        self._has_colours = has_colours

    def __call__(self, _: WrappedLogger, __: str, event: EventDict) -> str:
        """Render an event."""
        at, level = str(event.pop("timestamp", ""))[11:23], str(event.pop("level", ""))
        trace = event.pop("trace", None)
        text = event.pop("event", "")
        facts = " ".join(f"{name}={_format_value(value)}" for name, value in event.items())
        painted = self._colourizer(level)(f"{level:<7}")
        line = f"{at} {painted} {text}" + (f"  {self._colourizer('debug')(facts)}" if facts else "")
        return line + "".join(f"\n    {each}" for each in trace.split("\n")) if trace else line

    def _colourizer(self, level: str) -> Callable[[str], str]:
        colour = self.COLOURS.get(level, "0")
        return (lambda text: f"\x1b[{colour}m{text}\x1b[0m") if self._has_colours else str


def _format_value(value: Any) -> str:  # noqa: ANN401  # whatever was logged
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return ",".join(map(_format_value, value))
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return msgspec.json.encode(text).decode() if not text or " " in text or '"' in text else text


# --- spans ------------------------------------------------------------------------------------------------------------


def configure_tracing(*, endpoint: str | None, headers: str | None, version: str) -> Callable[[], None]:
    """Send spans to a collector. The function returned sends the remaining spans and stops.

    Raises:
        ImportError: the extra `otel` is not installed.
    """
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    pairs = dict(each.strip().split("=", 1) for each in (headers or "").split(",") if "=" in each)
    provider = TracerProvider(resource=Resource.create({"service.name": "dragoman", "service.version": version}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, headers=pairs or None)))
    trace.set_tracer_provider(provider)
    return provider.shutdown
