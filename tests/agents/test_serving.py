"""Agents before they are served: the public package, loading from files, and checks."""

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman import Agent, Capabilities, McpServer, Run, SelectOption, TextOption, agent, tool
from dragoman.agents import serving
from dragoman.agents.options import DEFAULTS, AgentOptions
from dragoman.agents.parameters import DeclarationError
from dragoman.core.tools import AgentSpec, ServerTool, ToolSpec
from dragoman.server.loading import LoadError, is_agent, load
from tests.agents.agent_harness import ScriptedModel, agent_harness

DOCS = Path(__file__).parent.parent.parent / "docs"

# --- the public package -----------------------------------------------------------------------------------------------


def test_the_public_names_are_few_and_defined() -> None:
    assert 10 <= len(dragoman.__all__) <= 30
    assert dragoman.__all__ == sorted(dragoman.__all__)
    assert [name for name in dragoman.__all__ if not hasattr(dragoman, name)] == []
    public = {name for name in vars(dragoman) if not name.startswith("_")}
    assert public - set(dragoman.__all__) <= {*(path.stem for path in Path(dragoman.__path__[0]).iterdir())}


def test_importing_the_public_package_imports_neither_server_nor_client() -> None:
    heavy = ["httpx2", "starlette", "uvicorn", "mcp", "pydantic", "sqlite3", "cryptography", "opentelemetry"]
    program = f"import sys, dragoman; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class TextModel(ScriptedModel):
    """A model that gets neither images nor files."""

    accepts_images = accepts_files = False


def test_an_agent_declares_only_images_and_files_that_its_model_can_get() -> None:
    for model, expected in ((ScriptedModel(), True), (TextModel(), False)):
        for given in (None, model):
            an_agent = Agent("a", model=given, images=True)
            serving.bind([an_agent], lambda name, model=model: model)  # type: ignore[misc]  # the default binds the loop's
            declared = an_agent.spec.capabilities
            assert (declared.image_http, declared.image_data, declared.files) == (expected,) * 3


# --- loading ----------------------------------------------------------------------------------------------------------

APP = """
from helper_beside import answer
from dragoman import Agent, agent

_hidden = Agent("hidden")
below = Agent("below")
above = Agent("above", subagents=[below])
again = above

@agent
async def function(run):
    yield answer

several = [above, below]
number = 3
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    monkeypatch.setattr(sys, "path", sys.path.copy())

    def write(text: str, name: str = "app_under_test.py") -> Path:
        sys.modules.pop("app_under_test", None)
        (tmp_path / "helper_beside.py").write_text("answer = '42'\n")
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def names(agents: Sequence[Any]) -> list[str]:
    return [agent.spec.name for agent in agents]


async def test_loading_a_file_returns_its_public_agents_in_order_without_sub_agents(
    app: Callable[..., Path], tmp_path: Path
) -> None:
    agents = load(str(app(APP)))
    assert names(agents) == ["above", "function"]
    async with agent_harness(tmp_path, agents[1]) as harness:
        session = await harness.session()
        await session.send_and_wait("?")
        assert (await session.summary_lines())[-1] == "assistant: 42"


@pytest.mark.parametrize(("name", "expected"), [("below", ["below"]), ("several", ["above", "below"])])
def test_loading_a_name_returns_that_agent_or_list(app: Callable[..., Path], name: str, expected: list[str]) -> None:
    assert names(load(f"{app(APP)}:{name}")) == expected


def test_a_file_that_is_loaded_twice_is_executed_once(app: Callable[..., Path]) -> None:
    path = app(APP)
    (first,), (second,) = load(f"{path}:above"), load(f"{path}:above")
    assert first is second


def test_a_file_may_have_the_name_of_an_installed_module(app: Callable[..., Path]) -> None:
    assert names(load(str(app(APP, "json.py")))) == ["above", "function"]
    assert "json_" in sys.modules
    del sys.modules["json_"]


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("x = 1", "", "no agent found"),
        (
            "def make_graph(config): ...",
            "",
            "under `@agent`. The server does not call make_graph: assign what it returns",
        ),
        (APP, ":nobody", "no agent 'nobody'; available agents: _hidden, below, above, again, function"),
        (APP, ":number", "expected an agent, but 'number' is a int"),
        ("x = 1", ":x", "expected an agent, but 'x' is a int; the file defines no agent"),
        (
            "x = 1\n\nimport nothing_of_that_name",
            "",
            f"No module named 'nothing_of_that_name'. Install it for {sys.executable}, which runs dragoman",
        ),
        (
            "raise ModuleNotFoundError(\"No module named 'agents'\", name='agents')",
            "",
            'which runs dragoman: pip install "dragoman[openai-agents]"',
        ),
        (
            "raise ModuleNotFoundError(\"No module named 'langchain_core.tools'\", name='langchain_core.tools')",
            "",
            'which runs dragoman: pip install "dragoman[langgraph]"',
        ),
        ("def f(:\n    pass", "", "line 1: SyntaxError: invalid syntax"),
        ("import sys\nsys.exit('no key')", "", "line 2: SystemExit: no key"),
        (
            "from dragoman import tool\n\n@tool\ndef add(a, b):\n    return a + b",
            "",
            "line 3: dragoman.agents.parameters.DeclarationError: tool add: parameter 'a' has no type annotation",
        ),
    ],
)
def test_errors_in_a_file_are_reported_with_their_line(
    app: Callable[..., Path], text: str, name: str, message: str
) -> None:
    path = app(text)
    with pytest.raises(LoadError) as refused:
        load(f"{path}{name}")
    assert str(refused.value).startswith(f"{path}: ")
    assert message in str(refused.value)
    assert "app_under_test" not in sys.modules or "number" in message or "agent" in message


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("nothing.py", "nothing.py: no such file. `dragoman init nothing.py` writes a first agent"),
        ("nothing.py:a", "nothing.py: no such file. `dragoman init nothing.py` writes a first agent"),
        ("nothing", "nothing: no such file"),
        (".", ".: is a folder; expected a Python file such as app.py"),
    ],
)
def test_a_missing_file_is_reported(where: str, message: str) -> None:
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        load(where)


def test_a_file_that_is_not_python_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "app.txt"
    path.touch()
    with pytest.raises(LoadError, match="a Python file"):
        load(str(path))


def test_any_object_with_the_members_of_an_agent_is_one() -> None:
    class Own:
        spec = AgentSpec(name="own")
        tool = child = play = None

    assert is_agent(Own())
    assert not is_agent(Own)
    assert not is_agent(dragoman)


# --- checking ---------------------------------------------------------------------------------------------------------


class MinimalAgent:
    """An agent with a specification and no behavior."""

    def __init__(self, **fields: Any) -> None:
        self.spec = AgentSpec(**{"name": "bare", **fields})

    def tool(self, name: str) -> None: ...

    def child(self, call: object) -> None: ...

    async def play(self, run: object) -> None: ...


def declared(name: str, **parameters: object) -> ServerTool:
    return ServerTool(spec=ToolSpec(name=name, description="", parameters=parameters or {"type": "object"}))


@tool
def add(a: int) -> int:
    """Add one."""
    return a + 1


@tool(name="add", exposed=False)
def hidden(a: int) -> int:
    """Add two."""
    return a + 2


@pytest.mark.parametrize(
    ("agents", "message"),
    [
        (
            [Agent("a"), MinimalAgent(name="a")],
            "two agents are named 'a': names and aliases must be unique on a server",
        ),
        (
            [Agent("a"), Agent("b", aliases=["a"])],
            "two agents are named 'a': names and aliases must be unique on a server",
        ),
        ([Agent("a b")], "an agent's name must have 1 to 64 characters (letters, digits, '_', '-', '.'), got 'a b'"),
        (
            [Agent("a", aliases=[""])],
            "an agent's name must have 1 to 64 characters (letters, digits, '_', '-', '.'), got ''",
        ),
        ([Agent("a", version="1.0")], "agent a: expected a semantic version such as 1.4.2, got '1.0'"),
        ([Agent("a", version="01.2.3")], "agent a: expected a semantic version such as 1.4.2, got '01.2.3'"),
        ([Agent("a", tools=[add, hidden])], "agent a: two tools are named 'add'"),
        (
            [Agent("a", tools=[tool(name="a.b")(hidden)])],
            "agent a: a tool's name must have 1 to 64 characters (letters, digits, '_', '-'), got 'a.b'",
        ),
        ([Agent("a", tools=[tool(name="Agent")(hidden)])], "agent a: Agent is the name of a built-in tool"),
        (
            [MinimalAgent(tools=(declared("x", type="array"),))],
            "agent bare: the parameters of tool x must be a JSON Schema of an object",
        ),
        (
            [Agent("a", options=[TextOption(name="x"), SelectOption(name="x", options=("1",), default="1")])],
            "agent a: two options are named 'x'",
        ),
        (
            [Agent("a", options=[TextOption(name="x y")])],
            "agent a: an option's name must have 1 to 64 characters (letters, digits, '_', '-', '.'), got 'x y'",
        ),
        (
            [Agent("a", options=[SelectOption(name="x", options=("1", "2"), default="3")])],
            "agent a: the default of option x must be one of 1, 2, got '3'",
        ),
        ([Agent("a", starters=["x" * 201])], f"agent a: a starter is a text of 1 to 200 characters, got {'x' * 201!r}"),
        ([Agent("a", subagents=[Agent("b"), Agent("b")])], "agent a: two sub-agents are named 'b'"),
        (
            [Agent("a", subagents=[Agent("b", version="x")])],
            "agent b: expected a semantic version such as 1.4.2, got 'x'",
        ),
    ],
)
def test_an_invalid_specification_is_refused_with_the_reason(agents: Sequence[Any], message: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        serving.check(agents)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("agents", "message"),
    [
        ([Agent("a", subagents=["c"]), Agent("b")], "agent a: no sub-agent 'c' is served; served agents: a, b"),
        ([Agent("a", subagents=["a"])], "agents call each other in a loop: a → a"),
        (
            [
                Agent("c", subagents=["a"]),
                Agent("a", subagents=[Agent("x", subagents=["b"])]),
                Agent("b", subagents=["a"]),
            ],
            "agents call each other in a loop: a → x → b → a",
        ),
    ],
)
def test_a_sub_agent_by_name_is_a_served_agent_and_no_loop(agents: Sequence[Any], message: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        serving.link(agents)
    assert str(refused.value) == message


async def test_an_agent_calls_another_served_agent_by_name(tmp_path: Path) -> None:
    @agent(options=[TextOption(name="tone", default="plain")], history=True)
    async def billing(run: Run) -> str:
        return f"{run.user} owes 5 for {run.text}, {run.options['tone']}"

    @agent(subagents=["billing"], options=[TextOption(name="tone", default="warm")])
    async def desk(run: Run) -> str:
        return await run.fork("billing", f"the {run.text}")

    async with agent_harness(tmp_path, desk, billing) as harness:
        session = await harness.session("desk")
        assert await session.send_and_wait("tea") == "end_turn"
        assert (await session.summary_lines())[-1] == "assistant: ann owes 5 for the tea, warm"
        direct = await harness.session("billing")
        assert await direct.send_and_wait("tea") == "end_turn"
        assert (await direct.summary_lines())[-1] == "assistant: ann owes 5 for tea, plain"


def test_valid_specifications_pass() -> None:
    one = Agent("one-1.x", version="1.0.0-rc.1+build.5", tools=[add], subagents=[Agent("two")])
    round_about = Agent("three", subagents=[one])
    one.subagents = (round_about,)
    serving.check([one, round_about, MinimalAgent()])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Agent("a", max_steps=0), "agent a: max_steps must be at least 1, got 0"),
        (lambda: Agent("a", starters="Hi"), "agent a: expected a list of starters, got the text 'Hi'"),
        (lambda: Agent("a", max_messages=1), "agent a: max_messages must be at least 2, got 1"),
        (
            lambda: Agent("a", tools=[3]),  # type: ignore[list-item]  # that is the point
            "agent a: expected a function, a tool or an MCP server in tools, got 3",
        ),
        (
            lambda: Agent("a", tools=[MinimalAgent]),
            f"agent a: expected a function, a tool or an MCP server in tools, got {MinimalAgent!r}",
        ),
    ],
)
def test_invalid_arguments_are_refused_when_the_agent_is_created(make: Callable[[], object], message: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        make()
    assert str(refused.value) == message


SHARED_OPTIONS = (
    "aliases, ask_user, capabilities, client_tools, description, history, images, max_steps, memory, options, "
    "resumable, schedules, starters, subagents, title, tools, version"
)


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    own = "context_window, instructions, max_messages, max_run_tokens, max_tokens, model, parameters"
    known = ", ".join(sorted([*own.split(", "), *SHARED_OPTIONS.split(", ")]))
    with pytest.raises(TypeError) as refused:
        Agent("a", modle="x")  # type: ignore[call-arg]  # that is the point
    assert str(refused.value) == f"agent a: unknown option 'modle' (known options: {known})"
    known = ", ".join(sorted(["name", *SHARED_OPTIONS.split(", ")]))
    with pytest.raises(TypeError) as refused:
        agent("f", tool=[], model="x")(lambda_agent)  # type: ignore[call-overload]  # that is the point
    assert str(refused.value) == f"agent f: unknown option 'model', 'tool' (known options: {known})"


async def test_agents_of_any_kind_can_be_bound_and_started() -> None:
    resolved: list[str] = []

    def resolve(name: str) -> ScriptedModel:
        resolved.append(name)
        return ScriptedModel()

    agents: list[Any] = [Agent("a"), MinimalAgent(), agent("f")(lambda_agent)]
    serving.bind(agents, resolve, "openai:x")
    await serving.start(agents)
    await serving.close(agents)
    assert resolved == ["openai:x"]


async def lambda_agent(run: dragoman.Run) -> str:
    return run.text


def test_flags_set_the_capabilities_unless_these_are_given() -> None:
    full = Capabilities(history_full=True, history_compacted=True, client_tools=True, image_http=True, image_data=True)
    assert Agent("a", images=True, history=True, client_tools=True).spec.capabilities == full
    assert Agent("a").spec.capabilities == Capabilities()
    assert agent("f")(lambda_agent).spec.capabilities == Capabilities()
    assert Agent("a", images=True, capabilities=Capabilities()).spec.capabilities == Capabilities()


# --- the pages --------------------------------------------------------------------------------------------------------


def blocks_of(page: str) -> list[str]:
    """The page's Python blocks that are complete programs."""
    found = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    return [block for block in found if "import " in block]


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=f"{page}-{place}")
        for page in ("agents.md", "tools.md")
        for place, block in enumerate(blocks_of(page))
    ],
)
def test_code_blocks_of_the_pages_can_be_executed(block: str) -> None:
    variables: dict[str, Any] = {"__name__": "page"}
    exec(compile(block, "page", "exec"), variables)
    serving.check([each for each in variables.values() if is_agent(each)])
    found = [each for each in variables.values() if is_agent(each) or hasattr(each, "declaration")]
    assert found or any(isinstance(each, McpServer) for each in variables.values())


def test_the_page_lists_the_parameters_of_an_agent() -> None:
    """Names, order and defaults of `Agent(…)`."""
    page = (DOCS / "agents.md").read_text(encoding="utf-8")
    listing = re.search(r"```python\nAgent\(\n(.*?)\n\)\n```", page, re.DOTALL)
    assert listing is not None
    lines = [re.fullmatch(r"    (\w+): .*?(?: = (.*))?,", line) for line in listing[1].splitlines()]
    documented = [(line[1], line[2]) for line in lines if line is not None]
    own = {name: each.default for name, each in inspect.signature(Agent).parameters.items() if name != "agent_options"}
    assert list(AgentOptions.__annotations__) == list(DEFAULTS)
    declared = [
        (name, None if default is inspect.Parameter.empty else repr(default).replace("'", '"'))
        for name, default in {**own, **DEFAULTS}.items()
    ]
    assert documented == declared
