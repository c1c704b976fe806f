"""The clients' records: everything they sent, and everything they received completely.

Pure. The checker compares the records with what the server says after all crashes.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.crash.turn_plans import TurnPlan
from tests.protocols.aap.official_client import OfficialClient
from tests.protocols.aap.stream import Frame, Mode

Json = Any
Message = dict[str, Json]


class Violation(AssertionError):
    """A promise was broken."""


@dataclass
class RunRecord:
    """A request of a turn and its outcome."""

    sent: list[Message]
    mode: Mode
    key: str | None
    run_id: str | None = None
    stream_mode: Mode | None = None
    """The stream mode in which its events were read; None before the first one."""
    frames: list[Frame] = field(default_factory=list)
    answer: Json = None
    """The complete answer in mode `none`."""
    deaths: int = 0
    """How often the server died between the request and the end."""

    @property
    def is_over(self) -> bool:
        return self.answer is not None or (bool(self.frames) and self.frames[-1].event == "turn_stop")

    @property
    def stop(self) -> str:
        """The stop reason."""
        return str(self.answer["stopReason"] if self.answer is not None else self.frames[-1].data["stopReason"])

    @property
    def code(self) -> str | None:
        """The error code."""
        meta = self.answer["_meta"] if self.answer is not None else self.frames[-1].data.get("_meta", {})
        error = meta.get("error")
        return None if error is None else str(error["code"])


@dataclass
class TurnRecord:
    """A user message and all its runs: the first one, and one for each round of answers."""

    plan: TurnPlan
    runs: list[RunRecord] = field(default_factory=list)
    decisions: dict[str, str] = field(default_factory=dict)
    """The result texts by call, for answers that settle the call."""
    is_superseded: bool = False
    """Whether its last calls got no answer because another message was sent."""


@dataclass
class SessionRecord:
    """A session as the client that created it knows it."""

    tag: str
    config: Json
    session_id: str = ""
    options: dict[str, str] = field(default_factory=dict)
    """The options as `GET` must show them."""
    turns: list[TurnRecord] = field(default_factory=list)
    client: OfficialClient = field(default_factory=OfficialClient)
    """The history that follows from what was sent and received."""
    is_deleted: bool = False
    is_deleting: bool = False
    """A deletion was requested; its outcome is not known yet."""
    refused_texts: list[str] = field(default_factory=list)
    """Texts of refused requests, which must not occur anywhere."""

    @property
    def runs(self) -> list[RunRecord]:
        """All runs of the session, in order."""
        return [run for turn in self.turns for run in turn.runs]

    @property
    def run_ids(self) -> set[str]:
        """The ids of its runs that are known."""
        return {run.run_id for run in self.runs if run.run_id is not None}
