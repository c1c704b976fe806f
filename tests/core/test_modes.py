"""What a session may be set to beside its tools, and what may be called while the agent only plans."""

from dragoman.core.admission import create, kind_of_call, offered_tools
from dragoman.core.events import (
    EncryptedValue,
    LoggedEvent,
    RunStarted,
    SessionCreated,
    SessionSettings,
    SettingsChange,
)
from dragoman.core.ids import RunId, SessionId, UserId
from dragoman.core.input_checks import InputLimits
from dragoman.core.inputs import Create
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.session import apply, apply_change, initial_state
from dragoman.core.tools import ASK_USER_QUESTION, FORK, AgentSpec, Capabilities, ServerTool, ToolPolicy, ToolSpec
from tests.core.strategies import NOON


def a_tool(name: str) -> ToolSpec:
    return ToolSpec(name=name, description="", parameters={"type": "object"})


SPEC = AgentSpec(
    name="a",
    tools=(
        ServerTool(spec=a_tool("look"), policy=ToolPolicy(reads_only=True)),
        ServerTool(spec=a_tool("act")),
        ServerTool(spec=a_tool("hidden"), policy=ToolPolicy(exposed=False)),
    ),
    builtins=frozenset({ASK_USER_QUESTION, FORK}),
    capabilities=Capabilities(client_tools=True),
)
PLANNING = SessionSettings(tools="all", mode="planning", client_tools=(a_tool("paint"),))
EXECUTING = apply_change(PLANNING, SettingsChange(mode="executing"))


def test_in_planning_mode_an_agent_may_read_ask_and_delegate_but_not_act() -> None:
    names = ("look", "act", "hidden", "paint", ASK_USER_QUESTION, FORK)
    assert [kind_of_call(name, SPEC, PLANNING) for name in names] == [
        "inline",
        "missing",
        "missing",
        "missing",
        "question",
        "fork",
    ]
    assert [kind_of_call(name, SPEC, EXECUTING) for name in names] == [
        "inline",
        "inline",
        "inline",
        "client",
        "question",
        "fork",
    ]


def test_the_model_is_only_offered_what_it_may_use() -> None:
    assert [tool.name for tool in offered_tools(SPEC, PLANNING)] == ["look"]
    assert [tool.name for tool in offered_tools(SPEC, EXECUTING)] == ["paint", "look", "act", "hidden"]


def test_the_mode_and_the_tools_of_a_run_come_before_those_of_the_session() -> None:
    own, other = ToolSpec(name="paint", description="another", parameters={}), a_tool("draw")
    settings = apply_change(EXECUTING, SettingsChange(client_tools=(a_tool("paint"), a_tool("erase"))))
    created = SessionCreated(agent="a", settings=settings, protocol="test")
    state = initial_state(SessionId("s"), UserId("ann"), LoggedEvent(1, NOON, None, created))
    assert state.effective_settings() == settings
    metadata = RunMetadata(mode="planning")
    run = RunStarted(run_id=RunId("r"), protocol="test", client_tools=(own, other), metadata=metadata)
    apply(state, LoggedEvent(2, NOON, RunId("r"), run))
    effective = state.effective_settings()
    assert (effective.mode, effective.client_tools) == ("planning", (own, other, a_tool("erase")))


def test_a_session_begins_with_what_its_maker_set() -> None:
    change = SettingsChange(title="t", model="m", mode="planning", env={"A": "1"}, pinned=True, persistent=True)
    request = Create(protocol="blade", agent="a", tools="all", change=change)
    [created] = create(SPEC, request, lambda text: EncryptedValue(text, 1), InputLimits())
    assert isinstance(created, SessionCreated)
    assert created.settings == SessionSettings(
        tools="all", title="t", model="m", mode="planning", env={"A": "1"}, pinned=True, persistent=True
    )


def test_a_change_replaces_what_it_names_and_options_by_key() -> None:
    settings = SessionSettings(title="t", options={"a": "1", "b": "2"}, pinned=True)
    change = SettingsChange(title="", options={"b": "3"}, pinned=False)
    assert apply_change(settings, change) == SessionSettings(title="", options={"a": "1", "b": "3"})
    assert apply_change(settings, SettingsChange()) is settings
