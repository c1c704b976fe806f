"""The walk-throughs of the protocols' pages, run as they are printed."""

from pathlib import Path

import pytest

from tests.servers import server_process
from tests.walkthrough import Step, assert_output, outputs_of, steps_of

SECTIONS = (
    ("protocols/aap.md", "A walk-through with curl"),
    ("protocols/ag-ui.md", "A walk-through with curl"),
    ("protocols/ag-ui.md", "A walk-through of the run service with curl"),
    ("protocols/agentscope.md", "A walk-through with curl"),
    ("protocols/blade.md", "A walk-through with curl"),
    ("protocols/openai.md", "A walk-through with curl"),
    ("protocols/a2a.md", "A walk-through with curl"),
    ("open-webui.md", "A walk-through with curl"),
)


@pytest.mark.parametrize(
    ("page", "heading"),
    SECTIONS,
    ids=["aap", "ag-ui", "run-service", "agentscope", "blade", "openai", "a2a", "open-webui"],
)
async def test_a_walk_through_prints_what_its_page_shows(tmp_path: Path, page: str, heading: str) -> None:
    folder = tmp_path / "shell"
    folder.mkdir()
    steps = steps_of(page, heading)
    async with server_process(tmp_path / "data") as server:
        outputs = await outputs_of(steps, folder, URL=server.connection.url, KEY=server.key("alice"))
    assert len(outputs) == len(steps)
    for step, output in zip(steps, outputs, strict=True):
        assert_output(step, output)


def test_an_output_that_differs_fails() -> None:
    step = Step("ls", "a …\nb\n")
    assert_output(step, "a 17\nb\n")
    for output in ("a 17\nc\n", "b\n", "a 1\nb\nc"):
        with pytest.raises(AssertionError):
            assert_output(step, output)
