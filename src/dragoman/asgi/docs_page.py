"""Renders an OpenAPI document as the HTML page at `/docs`, without scripts and external resources."""

import re
import shlex
from collections.abc import Iterator
from html import escape
from typing import Any

import msgspec

from dragoman.core.content import JsonObject

CONTENT_SECURITY_POLICY = (
    b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of the page."""

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8882}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code,pre{font:14px/1.45 ui-monospace,monospace}code{overflow-wrap:anywhere}
pre{background:var(--soft);padding:.7rem;overflow:auto;border-radius:6px}
details{border:1px solid var(--line);border-radius:6px;margin:.5rem 0;padding:.2rem .8rem}
summary{cursor:pointer;padding:.3rem 0}b{display:inline-block;min-width:4.5rem}
table{border-collapse:collapse;width:100%}
td,th{text-align:left;vertical-align:top;border-top:1px solid var(--line);padding:.3rem .6rem .3rem 0}
"""

_PATH_VARIABLE = re.compile(r"{(\w+)}")


def render(document: JsonObject) -> bytes:
    """The page as UTF-8 HTML."""
    info = document["info"]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1><p>{_text(info['description'])}</p>",
        "<p>For programs: <a href=openapi.json>openapi.json</a></p>",
        "<p>In the commands <code>$URL</code> is the address of this server, <code>$KEY</code> an API key.</p>",
        *_operations(document),
        "<h2>Types</h2>",
        *(_schema_section(name, schema) for name, schema in sorted(document["components"]["schemas"].items())),
    ]
    return "".join(parts).encode()


def _operations(document: JsonObject) -> Iterator[str]:
    tag = None
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if (operation_tag := operation.get("tags", [""])[0]) != tag:
                tag = operation_tag
                yield f"<h2>{escape(tag or 'Server')}</h2>"
            head = f"<b>{method.upper()}</b> <code>{escape(path)}</code> {escape(operation['summary'])}"
            command = f"<pre>{escape(curl_command(method.upper(), path, operation))}</pre>"
            yield f"<details><summary>{head}</summary>{''.join(_details(operation))}{command}</details>"


def curl_command(method: str, path: str, operation: JsonObject) -> str:
    """The operation as a shell command. Its variables are `$URL`, `$KEY` and ids of the path, such as `$SESSION_ID`."""
    words = ["curl -sS"]
    responses = [response for status, response in operation["responses"].items() if status.startswith("2")]
    if any("text/event-stream" in response.get("content", {}) for response in responses):
        words.append("-N")
    if operation.get("security") != []:
        words.append('-H "Authorization: Bearer $KEY"')
    body = operation.get("requestBody", {}).get("content", {})
    for media_type, content in body.items():
        example = msgspec.json.encode(content["example"]).decode() if "example" in content else "@BODY"
        words += [f"-H 'Content-Type: {media_type}'", f"-d {shlex.quote(example)}"]
    if method != ("POST" if body else "GET"):
        words.append(f"-X {method}")
    return " ".join([*words, f'"$URL{_PATH_VARIABLE.sub(_shell_variable, path)}"'])


def _shell_variable(name: re.Match[str]) -> str:
    """`${SESSION_ID}` for `{session}`. Without the suffix, some would be variables of the shell or the key."""
    return "${" + name[1].removesuffix("_id").upper() + "_ID}"


def _details(operation: JsonObject) -> Iterator[str]:
    yield f"<p>{_text(operation.get('description', ''))}</p>"
    if operation.get("security") == []:
        yield "<p>Needs no key.</p>"
    if parameters := operation.get("parameters"):
        rows = "".join(
            f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}<td>{escape(each['description'])}"
            for each in parameters
        )
        yield f"<table>{rows}</table>"
    if body := operation.get("requestBody"):
        yield "<h4>Body</h4>"
        for content in body["content"].values():
            yield _json(content.get("example", content["schema"]))
    yield "<h4>Responses</h4>"
    for status, response in operation["responses"].items():
        kinds = ", ".join(
            f"<code>{escape(kind)}</code> {_link(content['schema'])}"
            for kind, content in response.get("content", {}).items()
        )
        yield f"<p><b>{status}</b> {escape(response['description'])} {kinds}</p>"


def _schema_section(name: str, schema: JsonObject) -> str:
    return f"<details id='{escape(name)}'><summary><code>{escape(name)}</code></summary>{_json(schema)}</details>"


def _link(schema: JsonObject) -> str:
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    return f"<a href='#{escape(name)}'>{escape(name)}</a>" if name else ""


def _text(description: str) -> str:
    """A description, with what is in backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(description))


def _json(value: Any) -> str:  # noqa: ANN401  # any JSON
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return f"<pre>{escape(text)}</pre>"
