"""What a session may be set to beside its tools, and what may be called while the agent only plans."""

from dragoman.core.admission import create, kind_of_call, offered_tools
from dragoman.core.events import EncryptedValue, SessionCreated, SessionSettings, SettingsChange
from dragoman.core.input_checks import InputLimits
from dragoman.core.inputs import Create
from dragoman.core.session import apply_change
from dragoman.core.tools import ASK_USER_QUESTION, FORK, AgentSpec, Capabilities, ServerTool, ToolPolicy, ToolSpec


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
