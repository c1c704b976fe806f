"""What the clients know: everything that they sent, and everything that came back whole.

Pure. The checker compares it with what the server says after all the crashes.
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
    """One request for a turn, and what came of it."""

    sent: list[Message]
    mode: Mode
    key: str | None
    run_id: str | None = None
    stream_mode: Mode | None = None
    """The mode in which its events were read, once some were."""
    frames: list[Frame] = field(default_factory=list)
    answer: Json = None
    """The answer in mode `none`, where it came whole."""
    deaths: int = 0
    """How often the server died between the request and the end."""

    @property
    def is_over(self) -> bool:
        return self.answer is not None or (bool(self.frames) and self.frames[-1].event == "turn_stop")

    @property
    def stop(self) -> str:
        """Why it ended."""
        return str(self.answer["stopReason"] if self.answer is not None else self.frames[-1].data["stopReason"])

    @property
    def code(self) -> str | None:
        """The code of its failure."""
        meta = self.answer["_meta"] if self.answer is not None else self.frames[-1].data.get("_meta", {})
        error = meta.get("error")
        return None if error is None else str(error["code"])


@dataclass
class TurnRecord:
    """A user's message and all runs that it took to deal with it: the first, and one for each round of answers."""

    plan: TurnPlan
    runs: list[RunRecord] = field(default_factory=list)
    decisions: dict[str, str] = field(default_factory=dict)
    """What was answered, by call: the text of the result, where the answer settles it."""
    is_superseded: bool = False
    """Whether its last calls were left without an answer, because another message came."""


@dataclass
class SessionRecord:
    """A session, as the client that made it knows it."""

    tag: str
    config: Json
    session_id: str = ""
    options: dict[str, str] = field(default_factory=dict)
    """As `GET` must show them."""
    turns: list[TurnRecord] = field(default_factory=list)
    client: OfficialClient = field(default_factory=OfficialClient)
    """The history as it follows from what was sent and what came."""
    is_deleted: bool = False
    is_deleting: bool = False
    """A deletion was asked for; nobody knows yet what came of it."""
    refused_texts: list[str] = field(default_factory=list)
    """Words of requests that were refused: they may be nowhere."""

    @property
    def runs(self) -> list[RunRecord]:
        """All its runs, in order."""
        return [run for turn in self.turns for run in turn.runs]

    @property
    def run_ids(self) -> set[str]:
        """Those of its runs that are known."""
        return {run.run_id for run in self.runs if run.run_id is not None}
