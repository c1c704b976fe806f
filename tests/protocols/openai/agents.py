"""Agents for what the rehearsal agent does not show: what a request contained, and every kind of content."""

from collections.abc import Sequence
from typing import Any

from dragoman import Run as FunctionRun
from dragoman import agent
from dragoman.core.agent import Agent, Run, RunnableTool, Summary
from dragoman.core.content import Call, Data, File, Image, Message, Text, ToolMessage, UserMessage, text_of
from dragoman.core.events import StopReason
from dragoman.core.tools import AgentSpec, Capabilities
from tests.protocols.mirror_agent import MirrorAgent

MEDIA = (
    Text("look"),
    Image("https://example.org/a.png"),
    Data({"k": [1]}),
    File("https://example.org/a.pdf", name="a.pdf"),
)


class ContentMirror(MirrorAgent):
    """Has content of every kind."""

    media = MEDIA

    def tools(self, run: Run) -> Any:
        return [f"{tool.name}, strict" if tool.strict else tool.name for tool in run.offered_tools()]


@agent(name="weather", client_tools=True)
async def weather(run: FunctionRun) -> None:
    """Calls the application's first tool, and reports its result."""
    result = await run.call("get_weather", location="Paris")
    run.emit(f"The tool says {result}.")


class ForecastAgent:
    """Understands plain English: calls the application's first tool when asked about the weather, else repeats."""

    spec = AgentSpec(
        name="forecast", capabilities=Capabilities(client_tools=True, image_http=True, image_data=True, files=True)
    )

    def tool(self, name: str) -> RunnableTool | None:
        return None

    def child(self, call: Call) -> Agent | None:
        return None

    async def summarize(self, messages: Sequence[Message], previous_summary: str | None) -> Summary | None:
        *older, newest = [text_of(each.content) for each in messages]
        text = " | ".join(filter(None, [previous_summary, *older]))
        return Summary(text=text, keep_from=messages[-1].id, tokens_before=len(text) + len(newest), tokens_after=1)

    async def play(self, run: Run) -> StopReason | None:
        turn = await run.turn()
        text = next((text_of(each.content) for each in turn if isinstance(each, UserMessage)), "")
        tools = run.offered_tools()
        if isinstance(turn[-1], ToolMessage):
            run.emit(f"The tool says: {text_of(turn[-1].content)}")
        elif tools and "weather" in text.lower():
            run.think("The application has a tool for this.")
            run.call(tools[0].name, {"location": "San Francisco, CA"})
        else:
            run.emit(f"You said: {text}")
        await run.end_step()
        return None


forecast = ForecastAgent()
AGENTS = (ContentMirror(), weather, forecast)
