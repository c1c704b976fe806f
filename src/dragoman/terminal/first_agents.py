"""The files that `dragoman init` writes, by the kind of agent. Each needs no key before its first message."""

from typing import NamedTuple


class FirstAgent(NamedTuple):
    """An agent's file and its test.

    Args:
        title: what the kind is called.
        app: the agent's file; `{name}` stands for its name.
        test: the test's file; `{module}` stands for the agent's module.
        packages: what has to be installed beside dragoman itself.
    """

    title: str
    app: str
    test: str
    packages: str = ""


MODEL = FirstAgent(
    title="a model with tools",
    app='''\
"""A first agent. Serve it: dragoman dev {name}"""

from dragoman import Agent, tool


@tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


# A person has to approve each call of this tool.
@tool(needs_approval=True)
def send(to: str, text: str) -> str:
    """Send a message to a person."""
    return f"sent to {to}"


# To choose a model, add model="openai:gpt-5-mini". Otherwise the server picks that of a provider whose key is set,
# or the small embedded model, which can chat but cannot call tools.
# Other agents and MCP hosts choose an agent by its description.
assistant = Agent(
    "assistant",
    description="Adds numbers, and sends messages to people.",
    tools=[add, send],
    instructions="You are a helpful assistant. Use your tools where they help.",
    starters=["What is 20 + 22?", "Send Ann my greetings"],
    history=True,
)
''',
    test='''\
"""The agent with a scripted model. Run it: pytest {test_name}"""

from {module} import assistant

from dragoman.testing import Deny, Scripted, call, play


def test_it_adds():
    model = Scripted([call("add", a=20, b=22), "It is 42."])
    played = play(assistant, "What is 20 + 22?", model=model)
    assert played.text == "It is 42."
    assert [(each.name, each.result) for each in played.calls] == [("add", "42")]


def test_it_sends_nothing_without_approval():
    model = Scripted([call("send", to="Ann", text="Hi"), "Then I will not."])
    played = play(assistant, "Greet Ann", model=model, answers=[Deny(reason="not now")])
    assert model.read()[-1] == "tool: Tool call denied: not now"
    assert played.text == "Then I will not."
''',
)

FUNCTION = FirstAgent(
    title="a function: your own flow, which can ask and wait",
    app='''\
"""A first agent. Serve it: dragoman dev {name}"""

from collections.abc import AsyncIterator

from dragoman import Run, ToolFailed, agent, tool


# A person has to approve each call of this tool.
@tool(needs_approval=True)
def send(to: str, text: str) -> str:
    """Send a message to a person."""
    return f"sent to {to}"


# The function waits for answers for as long as it takes, across restarts: see "Agents" in the documentation.
@agent(tools=[send], starters=["Dinner is at seven"], history=True)
async def messenger(run: Run) -> AsyncIterator[str]:
    """Sends your message to somebody."""
    to = await run.ask("To whom?", ["Ann", "Bob"])
    yield f"To {to}: {run.text}\\n"
    try:
        yield await run.call(send, to=to, text=run.text)
    except ToolFailed as error:
        yield f"Not sent ({error})."
''',
    test='''\
"""The agent with a user who answers. Run it: pytest {test_name}"""

from {module} import messenger

from dragoman.testing import play


def test_it_asks_and_sends():
    played = play(messenger, "Dinner is at seven", answers=["Ann", True])
    assert played.text == "To Ann: Dinner is at seven\\nsent to Ann"


def test_it_sends_nothing_without_approval():
    assert play(messenger, "Hi", answers=["Bob", False]).text == "To Bob: Hi\\nNot sent (Tool call denied)."
''',
)

LANGGRAPH = FirstAgent(
    title="LangGraph",
    packages="dragoman[langgraph]",
    app='''\
"""A first LangGraph agent. Serve it: dragoman dev {name}"""

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt


def draft(state: MessagesState) -> dict:
    """Write a letter. A model can do this: call init_chat_model("openai:gpt-5-mini").invoke(state["messages"])."""
    return {"messages": [AIMessage(f"Dear reader, {state['messages'][-1].content}")]}


def review(state: MessagesState) -> dict:
    """Ask the user before the letter goes out."""
    answer = interrupt({"question": "Send it?", "options": ["yes", "no"]})
    return {"messages": [AIMessage("Sent." if answer == "yes" else "Not sent.")]}


graph = StateGraph(MessagesState)
graph.add_node("draft", draft)
graph.add_node("review", review)
graph.add_edge(START, "draft")
graph.add_edge("draft", "review")
graph.add_edge("review", END)
writer = graph.compile()
''',
    test='''\
"""The graph with a user who answers. Run it: pytest {test_name}"""

from {module} import writer

from dragoman.testing import play


def test_it_asks_before_it_sends():
    waiting = play(writer, "summer is here").waiting
    assert [each.kind for each in waiting] == ["question"]


def test_it_sends_what_is_approved():
    played = play(writer, "summer is here", answers=["yes"])
    assert played.text.endswith("Sent.")
''',
)

PYDANTIC_AI = FirstAgent(
    title="Pydantic AI",
    packages="dragoman[pydantic-ai,models]",
    app='''\
"""A first Pydantic AI agent. Serve it: dragoman dev {name}"""

from pydantic_ai import Agent

# Other agents and MCP hosts choose an agent by its description.
assistant = Agent(
    "openai:gpt-5-mini",
    defer_model_check=True,  # the key is needed when the first message comes
    description="Adds numbers, and sends messages to people.",
    instructions="You are a helpful assistant. Use your tools where they help.",
)


@assistant.tool_plain
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


# A person has to approve each call of this tool.
@assistant.tool_plain(requires_approval=True)
def send(to: str, text: str) -> str:
    """Send a message to a person."""
    return f"sent to {to}"
''',
    test='''\
"""The agent with Pydantic AI's test model, which calls tools. Run it: pytest {test_name}"""

from {module} import assistant
from pydantic_ai.models.test import TestModel

from dragoman.testing import play


def test_it_adds():
    with assistant.override(model=TestModel(call_tools=["add"], custom_output_text="Done.")):
        played = play(assistant, "Add")
    assert (played.text, [each.name for each in played.calls]) == ("Done.", ["add"])


def test_it_sends_nothing_without_approval():
    with assistant.override(model=TestModel(call_tools=["send"], custom_output_text="Done.")):
        assert [each.name for each in play(assistant, "Greet Ann").waiting] == ["send"]
''',
)

OPENAI_AGENTS = FirstAgent(
    title="OpenAI Agents SDK",
    packages="dragoman[openai-agents]",
    app='''\
"""A first agent of the OpenAI Agents SDK. Serve it: dragoman dev {name}"""

from agents import Agent, function_tool


@function_tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


# A person has to approve each call of this tool.
@function_tool(needs_approval=True)
def send(to: str, text: str) -> str:
    """Send a message to a person."""
    return f"sent to {to}"


# Other agents and MCP hosts choose an agent by its description.
assistant = Agent(
    name="Assistant",
    handoff_description="Adds numbers, and sends messages to people.",
    model="gpt-5-mini",
    instructions="You are a helpful assistant. Use your tools where they help.",
    tools=[add, send],
)
''',
    test='''\
"""The agent with a scripted model. Run it: pytest {test_name}"""

from {module} import assistant

from dragoman.testing import call, play
from dragoman.testing.openai_agents import ScriptedModel


def test_it_adds():
    model = ScriptedModel([call("add", a=20, b=22), "It is 42."])
    played = play(assistant.clone(model=model), "What is 20 + 22?")
    assert (played.text, [each.name for each in played.calls]) == ("It is 42.", ["add"])


def test_it_sends_nothing_without_approval():
    model = ScriptedModel([call("send", to="Ann", text="Hi")])
    assert [each.name for each in play(assistant.clone(model=model), "Greet Ann").waiting] == ["send"]
''',
)

FIRST_AGENTS = {
    "model": MODEL,
    "function": FUNCTION,
    "langgraph": LANGGRAPH,
    "pydantic-ai": PYDANTIC_AI,
    "openai-agents": OPENAI_AGENTS,
}
"""The kinds of agents that `dragoman init` knows, by their names on the command line."""
