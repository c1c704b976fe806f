"""Research in a folder of documents, with a sub-agent for each document, and a digest every Monday.

RESEARCH_FOLDER=docs dragoman serve examples/research.py

The lead is straight-line code: it searches, has the best documents read side by side, and writes a report with its
sources. Each reader is a sub-agent with a model; everybody who watches the session sees what it does. If the server
crashes, documents that were read are not read again.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from dragoman import Agent, Plan, PlanStep, Run, ScheduledPrompt, ToolContext, ToolFailed, agent, tool

FOLDER = Path(os.environ.get("RESEARCH_FOLDER", "docs"))
MOST_DOCUMENTS = 3
MOST_CHARACTERS = 20_000


@tool(reads_only=True, idempotent=True, internal=True)
def search(question: str) -> list[str]:
    """Find the documents with the most words of a question."""
    words = {word.strip(".,?!").lower() for word in question.split() if len(word) > 3}
    texts = {path.relative_to(FOLDER).as_posix(): path.read_text().lower() for path in FOLDER.rglob("*.md")}
    scores = {name: sum(word in text for word in words) for name, text in texts.items()}
    best = sorted(scores, key=lambda name: (-scores[name], name))
    return [name for name in best if scores[name]][:MOST_DOCUMENTS]


@tool(reads_only=True, idempotent=True, exposed=False)
def read(document: str, context: ToolContext) -> str:
    """Read a document."""
    path = (FOLDER / document).resolve()
    if not path.is_relative_to(FOLDER.resolve()) or not path.is_file():
        raise ToolFailed(f"there is no document {document}")
    return path.read_text()[:MOST_CHARACTERS]


reader = Agent(
    "reader",
    description="Answers a question from one document.",
    tools=[read],
    instructions="Read the document, and answer the question from it alone, in at most three sentences.",
)


def plan(*states: str) -> Plan:
    """The plan that people see, with the state of each step."""
    titles = ("Search the documents", "Read the best ones", "Write the report")
    steps = tuple(PlanStep(title, state) for title, state in zip(titles, states, strict=True))  # type: ignore[arg-type]
    return Plan(status="done" if states[-1] == "done" else "in_progress", steps=steps)


@agent(
    title="Research",
    tools=[search],
    subagents=[reader],
    history=True,
    starters=["How are runs continued after a crash?"],
    schedules=[
        ScheduledPrompt("Weekly digest", "0 8 * * mon", "What was decided lately?", user="local", time_zone="UTC")
    ],
)
async def research(run: Run) -> AsyncIterator[str | Plan]:
    """Answers questions from a folder of documents, with sources."""
    yield plan("in_progress", "pending", "pending")
    documents = await run.call(search, question=run.text)
    if not documents:
        yield "I found no document about that."
        return
    yield plan("done", "in_progress", "pending")
    answers = await asyncio.gather(*(run.fork(reader, f"{document}: {run.text}") for document in documents))
    yield plan("done", "done", "done")
    for document, answer in zip(documents, answers, strict=True):
        yield f"**{document}**: {answer}\n\n"
