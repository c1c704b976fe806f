"""Agents of other frameworks in a file: which are found, under which names, and what is refused."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest

from dragoman.adapters.base import FrameworkAgent
from dragoman.adapters.frameworks import Framework, Refused, load_adapter, needs_argument, no_model, own_runtime
from dragoman.agents.parameters import DeclarationError
from dragoman.agents.serving import check
from dragoman.core.agent import Agent
from dragoman.server.loading import LoadError, Wrapper, as_agent, load, load_all

AGENTS = """
from agents import Agent, function_tool

@function_tool
def add(a: int, b: int) -> int:
    "Add."
    return a + b

refunds = Agent(name="Refund agent", handoff_description="Pays money back.", tools=[add])
billing = Agent(name="billing-team", handoffs=[refunds], tools=[add])
_private = Agent(name="nobody")
"""

PIPELINE = """
from typing import TypedDict
from langgraph.graph import StateGraph
from dragoman.adapters.langgraph import LangGraphAgent

class State(TypedDict):
    topic: str
    depth: int

builder = StateGraph(State)
builder.add_node("look", lambda state: {"topic": "seen"})
builder.set_entry_point("look")
graph = builder.compile()
"""


def app(folder: Path, text: str, name: str = "app") -> str:
    path = folder / f"{folder.name.replace('-', '_')}_{name}.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


def names(agents: list[Agent]) -> list[tuple[str, str | None, tuple[str, ...]]]:
    return [(agent.spec.name, agent.spec.title, agent.spec.aliases) for agent in agents]


# --- what is found ----------------------------------------------------------------------------------------------------


def test_an_agent_has_the_name_of_its_variable_and_its_own_name_as_title_and_alias(tmp_path: Path) -> None:
    assert names(load_all([app(tmp_path, AGENTS)])) == [("billing", "billing-team", ("billing-team",))]


def test_an_agent_that_another_one_hands_off_to_is_served_when_it_is_named(tmp_path: Path) -> None:
    (agent,) = load_all([app(tmp_path, AGENTS) + ":refunds"])
    assert names([agent]) == [("refunds", "Refund agent", ())]
    assert agent.spec.description == "Pays money back."


def test_in_a_circle_of_handoffs_the_first_agent_of_the_file_is_served(tmp_path: Path) -> None:
    circle = AGENTS + "\nrefunds.handoffs.append(billing)\n"
    assert [agent.spec.name for agent in load(app(tmp_path, circle))] == ["refunds"]


def test_of_agents_that_hand_back_to_a_triage_agent_the_triage_agent_is_served(tmp_path: Path) -> None:
    """It is defined last, because it names the others."""
    circle = AGENTS + (
        "\ntriage = Agent(name='triage', handoffs=[refunds, billing])\n"
        "refunds.handoffs.append(triage)\nbilling.handoffs.append(triage)\n"
        "billing.handoffs.remove(refunds)\n"
    )
    assert [agent.spec.name for agent in load(app(tmp_path, circle))] == ["triage"]


def test_a_context_that_tools_expect_and_do_not_get_is_reported_at_the_start(tmp_path: Path) -> None:
    typed = (
        "from agents import Agent\nfrom dragoman.adapters.openai_agents import OpenAIAgentsAgent\n"
        "class Airline: ...\nbare = Agent[Airline](name='bare')\nother = Agent[Airline](name='other')\n"
        "plain = Agent[dict[str, str]](name='plain')\n"
        "wrapped = OpenAIAgentsAgent(other, name='wrapped', context=Airline())\n"
    )
    lines = [agent.describe() for agent in load(app(tmp_path, typed)) if isinstance(agent, Wrapper)]
    framework = f"OpenAI Agents SDK {version('openai-agents')}"
    assert lines == [
        f"{framework}, no Airline: tools get a dict, so wrap it, OpenAIAgentsAgent(bare, context=…), resumes",
        f"{framework}, resumes",
        f"{framework}, resumes",
    ]


def test_a_graph_that_needs_a_wrapper_and_its_builder_may_stay_in_the_file(tmp_path: Path) -> None:
    pytest.importorskip("langgraph", reason="LangGraph is not installed")
    path = app(tmp_path, PIPELINE)
    with pytest.raises(LoadError, match=r"graph takes \{topic, depth\}: wrap it"):
        load(path)
    wrapper = "served = LangGraphAgent(graph, name='served', input=lambda message, info: {})\n"
    for name, text in (("compiled", PIPELINE + wrapper), ("builder", PIPELINE.replace(".compile()", "") + wrapper)):
        assert [agent.spec.name for agent in load(app(tmp_path, text, name))] == ["served"]


def test_a_wrapper_replaces_the_agent_that_it_wraps(tmp_path: Path) -> None:
    wrapped = AGENTS + (
        "from dragoman.adapters.openai_agents import OpenAIAgentsAgent\n"
        "support = OpenAIAgentsAgent(billing, name='support', title='Support', max_steps=7, history=False)\n"
    )
    (agent,) = load(app(tmp_path, wrapped))
    assert names([agent]) == [("support", "Support", ())]
    assert (agent.spec.max_steps, agent.spec.capabilities.history_full) == (7, False)


def test_a_file_may_mix_agents_of_ours_and_of_frameworks_and_the_first_comes_first(tmp_path: Path) -> None:
    mixed = "from dragoman import Agent as OurAgent\nfirst = OurAgent('first')\n" + AGENTS
    assert [agent.spec.name for agent in load(app(tmp_path, mixed))] == ["first", "billing"]


def test_an_own_name_that_is_taken_is_no_alias(tmp_path: Path) -> None:
    text = "from agents import Agent\nassistant = Agent(name='helper')\n"
    other = "from agents import Agent\nhelper = Agent(name='helper')\n"
    files = [app(tmp_path, text, "one"), app(tmp_path, other, "two")]
    assert names(load_all(files)) == [("assistant", "helper", ()), ("helper", "helper", ())]
    check(load_all(files))


def test_embedders_get_the_agent_that_serves_a_value(tmp_path: Path) -> None:
    from agents import Agent as TheirAgent

    agent = as_agent(TheirAgent(name="Their agent"), "mine")
    assert agent is not None
    assert agent.spec.name == "mine"
    assert as_agent(agent, "other") is agent
    assert as_agent("no agent", "text") is None


def test_the_start_says_what_was_understood(tmp_path: Path) -> None:
    from importlib.metadata import version

    (agent,) = load(app(tmp_path, AGENTS))
    assert isinstance(agent, Wrapper)
    assert agent.describe() == f"OpenAI Agents SDK {version('openai-agents')}, 1 tool, 1 handoff, resumes"


def test_a_project_may_have_a_package_that_is_called_agents(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").write_text("class Thing: pass\n")
    program = "from agents import Thing\nfrom dragoman import Agent\nthing = Thing()\nmine = Agent('mine')\n"
    assert served_names(tmp_path, program) == "['mine']"


def test_a_file_without_frameworks_imports_none(tmp_path: Path) -> None:
    program = "from dragoman import Agent\nmine = Agent('mine')\n"
    shown = (
        "[each for each in ('pydantic_ai', 'langgraph', 'agents', 'dragoman.adapters.frameworks') if each in modules]"
    )
    assert served_names(tmp_path, program, shown) == "[]"


def served_names(folder: Path, program: str, shown: str = "[each.spec.name for each in found]") -> str:
    """Load a file in a new process. Returns what it prints: by default the names of the agents."""
    load_it = f"found = load_all([{app(folder, program)!r}])"
    code = f"from sys import modules\nfrom dragoman.server.loading import load_all\n{load_it}\nprint({shown})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder)
    return done.stdout.strip()


# --- what is refused --------------------------------------------------------------------------------------------------


OTHER_RANGE = Framework(
    title="LangGraph", distribution="openai-agents", extra="langgraph", modules=(), lowest=(90, 1), below=(91, 0)
)


def test_a_version_outside_the_range_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused) as refused:
        OTHER_RANGE.check_version()
    assert str(refused.value) == (
        f"openai-agents {OTHER_RANGE.installed} is installed; dragoman serves 90.1 up to 91: "
        'pip install "dragoman[langgraph]", or set DRAGOMAN_UNTESTED=1 to try'
    )
    monkeypatch.setenv("DRAGOMAN_UNTESTED", "1")
    OTHER_RANGE.check_version()


def test_the_range_begins_with_a_patch_release() -> None:
    lowest = tuple(map(int, OTHER_RANGE.installed.split(".")))
    msgspec.structs.replace(OTHER_RANGE, lowest=lowest).check_version()
    with pytest.raises(Refused):
        msgspec.structs.replace(OTHER_RANGE, lowest=(*lowest[:2], lowest[2] + 1)).check_version()


def test_a_name_that_the_framework_lacks_is_reported_with_the_version() -> None:
    refused = OTHER_RANGE.missing_name(ImportError("cannot import name 'Runner' from 'agents'"))
    assert str(refused).endswith("to try (cannot import name 'Runner' from 'agents')")


def test_a_realtime_agent_is_refused(tmp_path: Path) -> None:
    location = app(tmp_path, "from agents.realtime import RealtimeAgent\nvoice = RealtimeAgent(name='Voice')\n")
    with pytest.raises(LoadError) as refused:
        load(location)
    sentence = "voice brings its own runtime and cannot be served; serve the agent that it wraps"
    assert str(refused.value) == f"{location}: {sentence}"


def test_a_wrapper_needs_a_valid_name() -> None:
    from agents import Agent as TheirAgent

    wrapper = load_adapter("openai_agents").OpenAIAgentsAgent
    with pytest.raises(
        Refused, match=r"'Refund agent' is not a name that clients can use: OpenAIAgentsAgent\(…, name=…\)"
    ):
        wrapper(TheirAgent(name="Refund agent"))
    with pytest.raises(TypeError, match="unknown option 'colour'"):
        wrapper(TheirAgent(name="refunds"), colour="red")


def test_two_tools_of_one_name_in_one_agent_are_refused(tmp_path: Path) -> None:
    (agent,) = load(app(tmp_path, AGENTS + "\nbilling.tools.append(add)\n"))
    with pytest.raises(DeclarationError, match="agent billing: two tools are named 'add'"):
        check([agent])


def test_the_other_refusals_name_the_way_out() -> None:
    assert [
        str(no_model("support", 'Agent("openai:gpt-5-mini", …)')),
        str(needs_argument("support", "needs deps of type Deps", FrameworkAgent, "deps")),
        str(own_runtime("remote")),
    ] == [
        'support has no model: Agent("openai:gpt-5-mini", …)',
        (
            'support needs deps of type Deps: wrap it, FrameworkAgent(support, name="support", deps=…)'
            " from dragoman.adapters.base"
        ),
        "remote brings its own runtime and cannot be served; serve the agent that it wraps",
    ]


@pytest.mark.parametrize(
    ("imports", "line"),
    [
        ("from pydantic_ai import Agent", "result = Agent('test').run_sync('hi')"),
        ("from agents import Agent, Runner", "result = Runner.run_sync(Agent(name='Assistant'), 'hi')"),
    ],
)
async def test_a_file_that_runs_its_agent_while_it_is_loaded_is_told_where_that_belongs(
    tmp_path: Path, imports: str, line: str
) -> None:
    pytest.importorskip(imports.split()[1], reason="the framework is not installed")
    file = tmp_path / "hello.py"
    file.write_text(f"{imports}\n{line}\n")
    with pytest.raises(LoadError) as refused:
        load(str(file))
    assert str(refused.value).startswith(f"{file}: line 2: RuntimeError: ")
    assert str(refused.value).endswith(
        ". The server only loads the file: what runs an agent belongs below `if __name__ == '__main__'`"
    )
