"""The settings: one frozen struct, and what is known of each setting. `settings_loading` reads them."""

import ipaddress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Meta

from dragoman.core.content import Json
from dragoman.core.inputs import DisconnectPolicy

ENVIRONMENT_PREFIX = "DRAGOMAN_"
BUNDLED_DATABASE = "bundled"
"""Value of `database` for the PostgreSQL that comes with the extra `workers`."""

SUBJECTS = {
    "agents": "Agents",
    "host": "Server and storage",
    "auth": "Access",
    "body_bytes": "Limits",
    "time_zone": "Runs and streams",
    "aap": "Protocols",
    "log_level": "Logs and traces",
}
"""The subjects of the settings, for `--help` and docs/configuration.md, each by the first of its settings."""


def doc(description: str, *, ge: float | None = None, le: float | None = None, is_secret: bool = False) -> Meta:
    """A setting's description, for `--help` and docs/configuration.md, and its bounds."""
    return Meta(description=description, ge=ge, le=le, extra={"is_secret": is_secret})


# Large: one attribute for each setting.
class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. Times are in seconds, and sizes in bytes unless a setting says otherwise."""

    agents: Annotated[
        tuple[str, ...],
        doc(
            "Python files with the agents to serve, each `FILE.py` or `FILE.py:NAME`; agents of other servers, each"
            " `NAME=PROTOCOL+URL`"
        ),
    ] = ()
    default_agent: Annotated[str | None, doc("agent for clients that name none; not set: the first one served")] = None
    default_model: Annotated[str | None, doc("model for agents that name none, such as `openai:gpt-5-mini`")] = None
    fallback_models: Annotated[
        tuple[str, ...], doc("models that answer, in this order, if an agent's own model fails before its first word")
    ] = ()
    model_retries: Annotated[
        int, doc("how often a call is repeated if the model is unavailable before its first word", ge=0, le=10)
    ] = 2
    model_retry_max_s: Annotated[
        float, doc("longest delay before a retry; a model that asks for more by `Retry-After` is not retried", ge=0)
    ] = 60.0
    model_error_details: Annotated[
        bool | None,
        doc("send the messages of a model's errors to clients; not set: only on a loopback address without proxies"),
    ] = None
    agent_error_details: Annotated[
        bool, doc("send the text of an agent's exception, and its line of code, to clients; for development")
    ] = False
    models_required: Annotated[
        bool, doc("start only if the models of all agents can be used; otherwise their runs fail and say why")
    ] = True
    rehearsal: Annotated[bool, doc("also serve the two rehearsal agents, which need no model")] = False

    host: Annotated[str, doc("address to listen on")] = "127.0.0.1"
    port: Annotated[int, doc("port to listen on; 0 picks a free one", ge=0, le=65535)] = 8000
    trusted_proxies: Annotated[
        tuple[str, ...],
        doc("addresses of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted"),
    ] = ()
    data: Annotated[str, doc("data folder for database, blobs and secrets; created if missing")] = "dragoman-data"
    database: Annotated[
        str | None,
        doc(
            "PostgreSQL database, `postgresql://USER@HOST/NAME`, or `bundled` for the one of the extra `workers`; not"
            " set: SQLite in the data folder, or `bundled` with several workers",
            is_secret=True,
        ),
    ] = None
    nats: Annotated[
        str | None,
        doc("NATS for hints between servers on one PostgreSQL database, `nats://HOST:PORT`; optional", is_secret=True),
    ] = None
    nats_credentials: Annotated[
        str | None, doc("file with the NATS credentials: a user's `.creds`, or the seed of an NKey")
    ] = None
    nats_subject: Annotated[
        str, doc("prefix of the NATS subjects; use a different one for each installation on the same NATS")
    ] = "dragoman"
    blobs: Annotated[
        str | None,
        doc(
            "bucket for attachments, `s3://BUCKET/PREFIX?endpoint=URL&region=NAME`; not set: stored with the other data"
        ),
    ] = None
    workers: Annotated[
        int, doc("processes that share the port; more than one needs `database` or the extra `workers`", ge=1, le=1024)
    ] = 1
    lease_s: Annotated[
        float, doc("silence after which other servers on the database take over this server's runs", ge=4, le=3600)
    ] = 10.0
    synchronous: Annotated[
        Literal["full", "normal"],
        doc("`full` syncs each commit to disk; with `normal` a power failure may lose the last commits"),
    ] = "full"

    auth: Annotated[bool, doc("require API keys; can only be turned off on a loopback address")] = True
    oidc_issuer: Annotated[
        str | None,
        doc(
            "identity provider whose tokens are accepted in addition to keys, such as `https://login.example.org/realms/main`"
        ),
    ] = None
    oidc_audience: Annotated[
        tuple[str, ...], doc("audiences of which a token needs one; the name of this server at the provider")
    ] = ()
    oidc_jwks_url: Annotated[
        str | None, doc("address of the provider's keys; not set: the one in its discovery document")
    ] = None
    oidc_algorithms: Annotated[tuple[str, ...], doc("algorithms with which tokens may be signed")] = (
        "RS256",
        "PS256",
        "ES256",
        "EdDSA",
    )
    oidc_user_claim: Annotated[
        str, doc("claim that names the user; one that users cannot choose themselves, and that never changes")
    ] = "sub"
    oidc_scopes_claim: Annotated[
        str, doc("claim with the user's scopes, roles or groups, such as `realm_access.roles`")
    ] = "scope"
    oidc_scope_map: Annotated[
        tuple[str, ...], doc("scope that a value of that claim grants, each `VALUE=SCOPE`, such as `staff=use`")
    ] = ("dragoman:read=read", "dragoman:use=use", "dragoman:admin=admin")
    oidc_default_scopes: Annotated[
        tuple[Literal["read", "use", "admin"], ...], doc("scopes that every valid token grants, such as `use`")
    ] = ()
    oidc_client_id: Annotated[
        str | None, doc("the console's name at the provider, a public client; not set: the console takes only keys")
    ] = None
    oidc_login_scope: Annotated[str, doc("scopes that the console asks the provider for, separated by spaces")] = (
        "openid"
    )
    oidc_login_parameters: Annotated[
        tuple[str, ...],
        doc("further parameters of the console's login, each `NAME=VALUE`, such as `audience=dragoman`"),
    ] = ()
    oidc_leeway_s: Annotated[
        float, doc("tolerated difference between the clocks of the provider and the server, in seconds", ge=0, le=300)
    ] = 30.0
    first_key: Annotated[
        bool, doc("create a key on the first start, store it in the data folder, and print it at every start")
    ] = False
    public_meta: Annotated[bool, doc("list the agents for callers without a key")] = False
    public_metrics: Annotated[
        bool | None,
        doc("serve `/metrics` without an admin key; not set: only when listening on a loopback address"),
    ] = None
    console: Annotated[bool, doc("serve the web console at `/`")] = True
    cors_origins: Annotated[
        tuple[str, ...],
        doc(
            "origins of web pages that may call and may embed the console; empty: any with keys on, none with keys off"
        ),
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...], doc("names besides loopback names that `Host` may contain when keys are off")
    ] = ()

    body_bytes: Annotated[int, doc("largest request body, in bytes", ge=1024)] = 16 * 1024 * 1024
    bodies_bytes: Annotated[
        int,
        doc(
            "memory for large request bodies that arrive at the same time, in bytes; one user gets at most half",
            ge=1024 * 1024,
        ),
    ] = 128 * 1024 * 1024
    unread_bytes: Annotated[
        int,
        doc(
            "memory for responses that clients have not read yet, in bytes; beyond it the oldest one of the user with"
            " the most is cut off",
            ge=1024 * 1024,
        ),
    ] = 256 * 1024 * 1024
    text_chars: Annotated[int, doc("longest text block, in characters", ge=1)] = 1024 * 1024
    seeds: Annotated[int, doc("maximum number of messages in the initial history of a session", ge=0)] = 1000
    client_tools: Annotated[int, doc("maximum number of tools that an application may declare in a session", ge=0)] = (
        128
    )
    schema_bytes: Annotated[int, doc("largest JSON Schema of such a tool, in bytes", ge=2)] = 64 * 1024
    private_bytes: Annotated[
        int,
        doc(
            "largest private value of a message in the log, in bytes of JSON; larger ones are kept with the session",
            ge=0,
        ),
    ] = 4 * 1024 * 1024
    kept_value_bytes: Annotated[int, doc("largest value that an agent may keep with a session, in bytes", ge=1)] = (
        16 * 1024 * 1024
    )
    kept_bytes: Annotated[
        int, doc("total size of the values that an agent may keep with one session, in bytes", ge=0)
    ] = 256 * 1024 * 1024
    retention_days: Annotated[
        int,
        doc(
            "delete sessions this many days after their last change; 0 for never; `dragoman users set` for a user",
            ge=0,
            le=36_500,
        ),
    ] = 0
    max_runs_per_user: Annotated[int, doc("concurrent runs per user; 0 for no limit", ge=0)] = 1000
    tokens_per_day: Annotated[
        int,
        doc("tokens that a user's runs may use in a day (UTC); 0 for no limit; `dragoman users set` for a user", ge=0),
    ] = 0
    tokens_per_month: Annotated[
        int, doc("tokens that a user's runs may use in a calendar month (UTC); 0 for no limit", ge=0)
    ] = 0
    max_streams_per_user: Annotated[int, doc("open streams per user; 0 for no limit", ge=0)] = 10_000
    requests_per_minute: Annotated[
        int, doc("requests per minute for each key, also in one burst; 0 for no limit", ge=0)
    ] = 0
    wrong_keys_per_minute: Annotated[
        int, doc("wrong keys per address and minute before it is answered with 429; 0 for no limit", ge=0)
    ] = 60

    time_zone: Annotated[str, doc("time zone of scheduled tasks that name none, for users without one")] = "UTC"
    schedule_runs: Annotated[int, doc("maximum number of scheduled runs at the same time; more have to wait", ge=1)] = (
        50
    )
    run_timeout_s: Annotated[float, doc("longest run, in seconds", ge=1)] = 3600.0
    drain_s: Annotated[float, doc("grace period for running runs when the server stops", ge=0)] = 30.0
    heartbeat_s: Annotated[float, doc("silence after which a heartbeat is sent on a stream", ge=0.1)] = 15.0
    stalled_reader_s: Annotated[float, doc("how long a client may read nothing before it is disconnected", ge=1)] = 60.0
    sessions_in_memory: Annotated[int, doc("sessions cached in memory", ge=1)] = 1000

    aap: Annotated[bool, doc("serve AAP")] = True
    aap_path: Annotated[str, doc("path of AAP")] = "/aap/v3"
    ag_ui: Annotated[bool, doc("serve AG-UI's standard endpoint")] = True
    ag_ui_path: Annotated[str, doc("path of AG-UI's standard endpoint")] = "/ag-ui"
    ag_ui_on_disconnect: Annotated[
        DisconnectPolicy,
        doc("what happens to an AG-UI run when its client disconnects and nobody else is watching"),
    ] = "cancel"
    ag_ui_min_client: Annotated[
        Literal["0.0.58", "0.0.59"], doc("oldest AG-UI 0.x client to support; `0.0.58` has no sub-agents")
    ] = "0.0.59"
    run_service: Annotated[bool, doc("serve the AG-UI run service")] = True
    run_service_path: Annotated[str, doc("path of the AG-UI run service")] = "/api/v1/agent"
    run_service_streams: Annotated[
        int, doc("open event streams per user on the AG-UI run service; 0 for no limit", ge=0)
    ] = 8
    public_url: Annotated[
        str | None,
        doc("address at which clients reach the server, for signed and share links; not set: taken from each request"),
    ] = None
    transcription_model: Annotated[
        str | None,
        doc("model for speech to text, `openai:NAME` or `openai-compatible:NAME@URL`; not set: none"),
    ] = None
    agentscope: Annotated[bool, doc("serve the Agent API of AgentScope Runtime")] = True
    agentscope_path: Annotated[str, doc("path at which runs of the Agent API start")] = "/process"
    agentscope_strict_model: Annotated[
        bool, doc("reject a `model` of the Agent API that names no agent; otherwise the default agent answers")
    ] = False
    openai: Annotated[bool, doc("serve OpenAI's API")] = True
    openai_path: Annotated[str, doc("path of OpenAI's API")] = "/v1"
    openai_disconnect: Annotated[
        DisconnectPolicy,
        doc("what happens to a run of OpenAI's API when its client disconnects and nobody else is watching"),
    ] = "cancel"
    openai_keep_days: Annotated[
        int,
        doc(
            "days for which sessions with a single response of OpenAI's API are kept, which no list shows",
            ge=1,
            le=36_500,
        ),
    ] = 30
    openai_wait_hours: Annotated[
        int,
        doc(
            "hours for which a session that is not stored waits for results of the application's tools",
            ge=1,
            le=876_000,
        ),
    ] = 24
    openai_session_headers: Annotated[
        tuple[str, ...],
        doc("headers in which applications of Chat Completions name their chats, so that each chat is a session"),
    ] = ("X-OpenWebUI-Chat-Id",)
    mcp: Annotated[bool, doc("serve the agents as MCP tools")] = True
    mcp_path: Annotated[str, doc("path of the MCP endpoint")] = "/mcp"
    mcp_answer_within_s: Annotated[
        float,
        doc("how long a run may take before its MCP call is answered with `working`; 0 for any time", ge=0),
    ] = 50.0
    mcp_task_after_s: Annotated[
        float,
        doc(
            "how long a run may take before its MCP call becomes a task, if its client knows tasks; 0 for any time",
            ge=0,
        ),
    ] = 10.0
    mcp_approvals: Annotated[
        Literal["elicit", "other_clients"],
        doc("who answers approvals in sessions of MCP hosts: the host's user, in a form, or `other_clients` only"),
    ] = "elicit"
    mcp_disconnect: Annotated[
        DisconnectPolicy,
        doc("what happens to a run of a 2026-07-28 MCP call when its client disconnects and nobody else is watching"),
    ] = "cancel"
    mcp_authorization: Annotated[
        bool, doc("tell MCP hosts to get their tokens from `oidc_issuer`; needs `public_url`")
    ] = False
    mcp_resources: Annotated[bool, doc("show the user's conversations as MCP resources")] = True
    ai_sdk: Annotated[bool, doc("serve the AI SDK")] = True
    ai_sdk_path: Annotated[str, doc("path of the AI SDK")] = "/ai-sdk"
    ai_sdk_on_disconnect: Annotated[
        DisconnectPolicy,
        doc("what happens to a run of the AI SDK when its client disconnects and nobody else is watching"),
    ] = "continue"
    ai_sdk_version: Annotated[
        Literal["5", "6", "7"], doc("version of the package `ai` of clients that do not name theirs")
    ] = "6"
    a2a: Annotated[bool, doc("serve the agents to other agents, over A2A")] = True
    a2a_path: Annotated[str, doc("path of A2A, below which each agent has an address")] = "/a2a"
    a2a_public_cards: Annotated[bool, doc("let A2A clients read the agents' cards without a key")] = True
    blade: Annotated[bool, doc("serve Blade at `/api` and `/socket.io/`; the console needs it")] = True
    blade_memory: Annotated[bool, doc("turn memory on by default in new sessions of Blade and of schedules")] = True
    blade_public_sharing: Annotated[
        bool, doc("allow share links, over Blade, that show a session to everybody who has the link")
    ] = True
    blade_key_prefix: Annotated[str, doc("prefix of keys that are created over Blade's REST API")] = "sk-blade-v2-"
    blade_level: Annotated[
        str, doc("level of Blade that is reported to clients; clients with the same major number are compatible")
    ] = "2608.0.4"
    blade_full_content: Annotated[
        bool,
        doc(
            "repeat the whole text in every patch of a growing block over Blade; "
            "otherwise only some patches of texts beyond 4,096 characters do"
        ),
    ] = False
    blade_sync_patch_ms: Annotated[
        int,
        doc("interval at which growing turns are also sent whole over Blade, as `sync` patches; 0 for never", ge=0),
    ] = 0
    blade_unauthenticated_per_address: Annotated[
        int,
        doc(
            "open Socket.IO connections per address that have not shown a key; beyond it the oldest is closed;"
            " 0 for no limit",
            ge=0,
        ),
    ] = 500

    log_level: Annotated[Literal["debug", "info", "warning", "error"], doc("lowest level that is logged")] = "info"
    log_format: Annotated[
        Literal["auto", "console", "json"], doc("`auto` is `console` in a terminal and `json` elsewhere")
    ] = "auto"
    otel: Annotated[bool, doc("send OpenTelemetry spans; needs the extra `otel`")] = False
    otel_endpoint: Annotated[
        str | None, doc("URL of the OTLP/HTTP collector's traces endpoint; not set: the SDK's default")
    ] = None
    otel_headers: Annotated[str | None, doc("headers for the collector, `NAME=VALUE,NAME=VALUE`", is_secret=True)] = (
        None
    )

    @property
    def folder(self) -> Path:
        """The data folder's path."""
        return Path(self.data).expanduser()

    @property
    def is_loopback(self) -> bool:
        """Whether the server listens on a loopback address only."""
        return is_loopback(self.host)

    @property
    def shows_model_errors(self) -> bool:
        """Whether clients get the messages of a model's errors: by default if nobody else can reach the server."""
        is_local = self.is_loopback and not self.trusted_proxies
        return is_local if self.model_error_details is None else self.model_error_details


class SettingsError(Exception):
    """A setting is unknown or invalid. The message names its source and what is expected."""


class UnusableData(SettingsError):
    """The settings are valid, but the data that they name cannot be used. The message says what to do."""


class SettingInfo(NamedTuple):
    """The name, type, default, description and subject of one setting."""

    name: str
    type: Any
    default: Json
    meta: Meta
    subject: str

    @property
    def description(self) -> str:
        """What the setting is for."""
        assert self.meta.description is not None, "every setting has a description"
        return self.meta.description

    @property
    def is_secret(self) -> bool:
        """Whether the value is masked wherever settings are shown."""
        return self.meta.extra is not None and bool(self.meta.extra["is_secret"])

    @property
    def flag(self) -> str:
        """The flag on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return ENVIRONMENT_PREFIX + self.name.upper()


@cache
def all_settings() -> tuple[SettingInfo, ...]:
    """All settings, in the order in which they are documented."""
    hints = get_type_hints(Settings, include_extras=True)
    infos = []
    subject = ""
    for field in msgspec.structs.fields(Settings):
        kind, meta = get_args(hints[field.name])
        subject = SUBJECTS.get(field.name, subject)
        infos.append(SettingInfo(field.name, kind, field.default, meta, subject))
    return tuple(infos)


def is_loopback(host: str) -> bool:
    """Whether a host name or address is a loopback one."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
