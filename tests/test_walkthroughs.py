"""The walk-throughs of the protocols' pages, run as they are printed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.servers import ServerProcess, server_process
from tests.walkthrough import Step, assert_output, outputs_of, steps_of

SECTIONS = (
    ("protocols/aap.md", "A walk-through with curl"),
    ("protocols/ag-ui.md", "A walk-through with curl"),
    ("protocols/ag-ui.md", "A walk-through of the run service with curl"),
    ("protocols/agentscope.md", "A walk-through with curl"),
    ("protocols/blade.md", "A walk-through with curl"),
    ("protocols/openai.md", "A walk-through with curl"),
    ("protocols/a2a.md", "A walk-through with curl"),
    ("protocols/ai-sdk.md", "A walk-through with curl"),
    ("protocols/mcp.md", "A walk-through with curl"),
    ("open-webui.md", "A walk-through with curl"),
)


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerProcess]:
    """The program, with what earlier walk-throughs have left, as a reader's server has."""
    async with server_process(tmp_path_factory.mktemp("walk-throughs")) as server:
        yield server


@pytest.mark.parametrize(
    ("page", "heading"),
    SECTIONS,
    ids=["aap", "ag-ui", "run-service", "agentscope", "blade", "openai", "a2a", "ai-sdk", "mcp", "open-webui"],
)
async def test_a_walk_through_prints_what_its_page_shows(
    server: ServerProcess, tmp_path: Path, page: str, heading: str
) -> None:
    steps = steps_of(page, heading)
    outputs = await outputs_of(steps, tmp_path, URL=server.connection.url, KEY=server.key("alice"))
    assert len(outputs) == len(steps)
    for step, output in zip(steps, outputs, strict=True):
        assert_output(step, output)


def test_an_output_that_differs_fails() -> None:
    step = Step("ls", "a …\nb\n")
    assert_output(step, "a 17\nb\n")
    for output in ("a 17\nc\n", "b\n", "a 1\nb\nc"):
        with pytest.raises(AssertionError):
            assert_output(step, output)
