"""The setting `models_required`: a server whose models cannot be used starts without it, and its runs say why."""

from pathlib import Path

import pytest

from dragoman import Agent
from dragoman.client import Client, RunFailed
from dragoman.models.registry import ModelNameError
from dragoman.testing import Scripted, serve

KEYLESS = Agent("keyless", model="openai:gpt-5-mini")


def test_without_it_a_run_says_why_its_model_cannot_be_used(tmp_path: Path) -> None:
    missing = Agent("missing", model=f"embedded:{tmp_path / 'none.gguf'}")
    healthy = Agent("healthy", model=Scripted(["Hello!"]))
    with (
        serve(KEYLESS, missing, healthy, models_required=False) as server,
        Client(server.url, key=server.key) as client,
    ):
        assert client.create("healthy").ask("Hi").text == "Hello!"
        with pytest.raises(RunFailed, match=r"The model openai:gpt-5-mini failed: .*OPENAI_API_KEY is not set"):
            client.create("keyless").ask("Hi")
        with pytest.raises(RunFailed, match=r"none\.gguf"):
            client.create("missing").ask("Hi")


def test_by_default_the_server_does_not_start() -> None:
    with pytest.raises(ModelNameError, match="OPENAI_API_KEY is not set"), serve(KEYLESS):
        pass
