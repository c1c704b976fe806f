"""Checks of what clients send: settings, tools, and the content of messages. Pure.

Each function raises a refusal for the first thing that is wrong; none changes anything.
"""

import re
import string
from collections.abc import Callable, Iterable, Sequence
from urllib.parse import urlsplit

import msgspec

from dragoman.core.answers import RAW_LIMIT
from dragoman.core.content import TOO_DEEP, Call, Data, File, Image, Json, Text, Thinking, encode_json, is_too_deep
from dragoman.core.events import EncryptedValue, SessionSettings, SettingsChange
from dragoman.core.inputs import Answer, Result, StoredImage, UserInput
from dragoman.core.refusals import (
    ClientToolsUnsupported,
    DuplicateToolName,
    FileUnsupported,
    ImageUnsupported,
    Invalid,
    InvalidOptionValue,
    LimitExceeded,
    UnknownOption,
    UnknownTool,
)
from dragoman.core.session import apply_change
from dragoman.core.tools import AgentSpec, SecretOption, SelectOption, ToolGrant, ToolSpec

OPTION_LIMIT = 64 * 1024
CALL_NAME_CHARS = 256
"""Characters of a tool's name in a call of a history, whose tool may be one that is not served here."""
METADATA_LIMIT = 16 * 1024
"""Bytes of a message's metadata, as JSON."""
UNCHANGED_SECRET = "***"  # the placeholder that clients are shown
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WEB_URL = re.compile(r"https?://[^\s\x00-\x1f\x7f]+", re.IGNORECASE)
_FILE_TYPE = re.compile(r"data:[^\s;,]*(?:;[^\s;,]+)*;base64", re.IGNORECASE)
_IMAGE_TYPE = re.compile(r"data:image/[a-z0-9.+-]+;base64", re.IGNORECASE)
_BASE64 = (string.ascii_letters + string.digits + "+/").encode()

EncryptFunction = Callable[[str], EncryptedValue]


class InputLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a session accepts at once. A protocol may set lower limits (shared rules, 27)."""

    text_chars: int = 1024 * 1024
    seeds: int = 1000
    messages: int = 1000
    """User messages in one request."""
    blocks: int = 1000
    """Blocks of one message."""
    queued_runs: int = 100
    """Runs that wait in one session."""
    client_tools: int = 128
    schema_bytes: int = 64 * 1024


DEFAULT_LIMITS = InputLimits()


# --- settings -----------------------------------------------------------------------------------------------------


def check_change(
    spec: AgentSpec, settings: SessionSettings, change: SettingsChange, encrypt: EncryptFunction, limits: InputLimits
) -> SettingsChange:
    """Check the settings that a client changes, and encrypt the secrets among them.

    A secret sent as `***` means unchanged: clients send back what they were shown. Returns an empty change if the
    settings stay the same.

    Raises:
        Invalid: the first thing that is wrong.
    """
    if change.is_empty():
        return change
    if change.client_tools is not None:
        check_client_tools(spec, change.client_tools, limits)
    if change.tools is not None and change.tools != "all":
        check_grants(spec, change.tools)
    options = check_options(spec, {name: str(value) for name, value in change.options.items()}, encrypt)
    checked = msgspec.structs.replace(change, options=options)
    return SettingsChange() if apply_change(settings, checked) == settings else checked


def check_client_tools(spec: AgentSpec, tools: Sequence[ToolSpec], limits: InputLimits) -> None:
    """Check the application's tools: whether the agent accepts any, their number, and that names are unique."""
    if tools:
        _require_client_tools(spec, tools)
        _check_client_tools(tools, {tool.spec.name for tool in spec.tools} | spec.builtins, limits)


def tools_of_run(
    spec: AgentSpec, tools: Sequence[ToolSpec], limits: InputLimits
) -> tuple[tuple[ToolSpec, ...], tuple[str, ...]]:
    """The tools that an application provides for one run, and the names of those that are left out.

    A tool with the name of one of the agent's is left out rather than refused: front ends repeat the agent's tools.

    Raises:
        ClientToolsUnsupported: the agent accepts no tools of the application.
        Invalid: a tool is wrong for every agent.
    """
    if not tools:
        return (), ()
    _check_client_tools(tools, set(), limits)
    own = {tool.spec.name for tool in spec.tools} | spec.builtins
    accepted = tuple(tool for tool in tools if tool.name not in own)
    _require_client_tools(spec, accepted)
    return accepted, tuple(tool.name for tool in tools if tool not in accepted)


def _require_client_tools(spec: AgentSpec, tools: Sequence[ToolSpec]) -> None:
    if tools and not spec.capabilities.client_tools:
        hint = "Agent(…, client_tools=True) allows them"
        raise ClientToolsUnsupported(f"agent {spec.name!r} takes no tools of the application's: {hint}", path="tools")


def _check_client_tools(tools: Sequence[ToolSpec], taken: set[str], limits: InputLimits) -> None:
    if len(tools) > limits.client_tools:
        raise LimitExceeded("the number of tools", limits.client_tools, path="tools")
    names = set(taken)
    for index, tool in enumerate(tools):
        if _TOOL_NAME.fullmatch(tool.name) is None:
            raise Invalid(
                f"a tool's name must have 1 to 64 letters, digits, '_' or '-', got {tool.name[:80]!r}",
                path=f"tools[{index}].name",
            )
        _check_depth(tool.parameters, f"tools[{index}].parameters")
        if len(msgspec.json.encode(tool.parameters)) > limits.schema_bytes:
            raise LimitExceeded("a tool's schema", limits.schema_bytes, path=f"tools[{index}].parameters")
        if tool.name in names:
            raise DuplicateToolName(tool.name)
        names.add(tool.name)


def check_grants(spec: AgentSpec, grants: Iterable[ToolGrant]) -> None:
    """Check the server tools to enable: each must be exposed, and named once."""
    exposed = {tool.spec.name for tool in spec.tools if tool.policy.is_listed}
    seen: set[str] = set()
    for grant in grants:
        if grant.name not in exposed:
            raise UnknownTool(grant.name, [tool.spec.name for tool in spec.exposed()])
        if grant.name in seen:
            raise DuplicateToolName(grant.name)
        seen.add(grant.name)


def check_options(spec: AgentSpec, values: dict[str, str], encrypt: EncryptFunction) -> dict[str, str | EncryptedValue]:
    """Check option values against their declarations; secrets are returned encrypted."""
    checked: dict[str, str | EncryptedValue] = {}
    for name, value in values.items():
        option = spec.option(name)
        if option is None:
            raise UnknownOption(name, [option.name for option in spec.options])
        if len(value.encode("utf-8", "surrogatepass")) > OPTION_LIMIT:
            raise InvalidOptionValue(name, f"the value of option {name!r} is longer than {OPTION_LIMIT} bytes")
        if isinstance(option, SelectOption) and value not in option.options:
            raise InvalidOptionValue(
                name, f"option {name!r} takes one of {', '.join(option.options)}", allowed=option.options
            )
        if isinstance(option, SecretOption):
            if value != UNCHANGED_SECRET:
                checked[name] = encrypt(value)
        else:
            checked[name] = value
    return checked


# --- content ------------------------------------------------------------------------------------------------------


def check_content(
    spec: AgentSpec, content: str | Sequence[object], limits: InputLimits, path: str = "messages"
) -> None:
    """Check the size of texts, the number and depth of blocks, the URLs, and what the agent accepts."""
    check_block_count(content, limits, path)
    blocks = (Text(content),) if isinstance(content, str) else content
    texts = [each.text for each in blocks if isinstance(each, Text | Thinking)]
    if sum(map(len, texts)) > limits.text_chars:
        raise LimitExceeded("a message's text", limits.text_chars, path=path)
    for index, block in enumerate(blocks):
        if isinstance(block, Image):
            _check_image(spec, block, f"{path}.content[{index}]")
        elif isinstance(block, File):
            _check_file(spec, block, f"{path}.content[{index}]")
        elif isinstance(block, StoredImage):
            _check_stored_image(spec)
        elif isinstance(block, Call):
            if len(block.name) > CALL_NAME_CHARS:
                raise LimitExceeded("the name of a call's tool", CALL_NAME_CHARS, path=f"{path}.content[{index}].name")
            _check_value(block.input, RAW_LIMIT, "a call's arguments", f"{path}.content[{index}].input")
        elif isinstance(block, Data):
            _check_depth(block.data, f"{path}.content[{index}].data")


def check_block_count(content: str | Sequence[object], limits: InputLimits = DEFAULT_LIMITS, path: str = "") -> None:
    """Check the number of a message's blocks. Raises LimitExceeded.

    A protocol that translates blocks one by one checks it first: a body has room for a million of them.
    """
    if not isinstance(content, str) and len(content) > limits.blocks:
        raise LimitExceeded("the number of a message's blocks", limits.blocks, path=path)


def check_messages(spec: AgentSpec, messages: Sequence[UserInput], limits: InputLimits) -> None:
    """Check the user messages of a request."""
    if len(messages) > limits.messages:
        raise LimitExceeded("the number of messages", limits.messages, path="messages")
    for index, message in enumerate(messages):
        check_content(spec, message.content, limits, f"messages[{index}]")
        _check_value(message.metadata, METADATA_LIMIT, "a message's metadata", f"messages[{index}].metadata")


def check_answer(spec: AgentSpec, answer: Answer, limits: InputLimits) -> None:
    """Check the content of an answer like that of a message."""
    if isinstance(answer, Result):
        check_content(spec, answer.content, limits)
        _check_value(answer.raw, RAW_LIMIT, "a tool's result", "answers")


def _check_value(value: Json | msgspec.UnsetType, limit: int, what: str, path: str) -> None:
    if value is msgspec.UNSET:
        return
    _check_depth(value, path)
    if len(encode_json(value)) > limit:
        raise LimitExceeded(f"the bytes of {what}", limit, path=path)


def _check_depth(value: Json, path: str) -> None:
    if is_too_deep(value):
        raise Invalid(TOO_DEEP, path=path)


def is_web_url(url: str) -> bool:
    """Whether a URL has the scheme `http` or `https`, and a host."""
    if _WEB_URL.fullmatch(url) is None:
        return False
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False


def _is_data_uri(url: str, kind: re.Pattern[str]) -> bool:
    """Whether a URL is a base64 `data:` URI of a kind.

    The content may be megabytes long: with a regular expression for all of it, this would take eight times as long.
    """
    head, comma, content = url.partition(",")
    if not comma or kind.fullmatch(head) is None or not content.isascii():
        return False
    padded = content.encode()
    encoded = padded.rstrip(b"=")
    return len(padded) - len(encoded) <= 2 and not encoded.translate(None, _BASE64)


def _check_file(spec: AgentSpec, file: File, path: str) -> None:
    if is_web_url(file.url):
        return
    if not _is_data_uri(file.url, _FILE_TYPE):
        raise Invalid("expected a file's URL with http or https and a host, or a base64 data: URI", path=path)
    if not spec.capabilities.files:
        raise FileUnsupported(f"agent {spec.name!r} takes no files", path=path)


def _check_image(spec: AgentSpec, image: Image, path: str) -> None:
    if is_web_url(image.url):
        if not spec.capabilities.image_http:
            raise ImageUnsupported(_without_images(spec, "by URL"), path=path)
    elif not _is_data_uri(image.url, _IMAGE_TYPE):
        raise ImageUnsupported(
            "expected an image's URL with http or https and a host, or a base64 data: URI of an image", path=path
        )
    elif not spec.capabilities.image_data:
        raise ImageUnsupported(_without_images(spec, "as data URIs"), path=path)


def _check_stored_image(spec: AgentSpec) -> None:
    if not spec.capabilities.image_data:
        raise ImageUnsupported(_without_images(spec, "as data URIs"))


def _without_images(spec: AgentSpec, form: str) -> str:
    """The sentence about an image in a form that the agent does not take; without the form if it takes none at all."""
    takes_some = spec.capabilities.image_http or spec.capabilities.image_data
    return f"agent {spec.name!r} takes no images{f' {form}' if takes_some else ''}"
