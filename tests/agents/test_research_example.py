"""`examples/research.py`: sub-agents read side by side, and the digest is declared with the agent."""

from pathlib import Path

import pytest

from dragoman.core.content import UserMessage
from dragoman.ports.models import ModelRequest
from dragoman.server.loading import load
from dragoman.testing import Scripted, call, play
from dragoman.testing.scripted import Part

EXAMPLE = Path(__file__).parents[2] / "examples" / "research.py"
DOCUMENTS = {"bees.md": "Bees make honey.", "hives.md": "Honey is kept in hives.", "cars.md": "Cars."}


def read_and_quote(request: ModelRequest) -> Part:
    """The model of a reader: it reads the document of its task, and quotes it."""
    last = request.messages[-1]
    if isinstance(last, UserMessage):
        return call("read", document=str(last.content).partition(":")[0])
    return str(last)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in DOCUMENTS.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("RESEARCH_FOLDER", str(tmp_path))
    return tmp_path


def test_the_best_documents_are_read_by_a_sub_agent_each(folder: Path) -> None:
    research, *_ = load(str(EXAMPLE))
    played = play(research, "Where is honey kept?", model=Scripted([read_and_quote] * 4))
    paragraphs = played.text.strip().split("\n\n")
    assert [each.partition(":")[0] for each in paragraphs] == ["**hives.md**", "**bees.md**"]
    assert all(DOCUMENTS[name] in each for name, each in zip(["hives.md", "bees.md"], paragraphs, strict=True))
    assert [each.cron for each in research.spec.schedules] == ["0 8 * * mon"]


def test_a_question_without_documents_is_answered_without_a_model(folder: Path) -> None:
    research, *_ = load(str(EXAMPLE))
    assert play(research, "Who won?", model=Scripted([])).text == "I found no document about that."
