"""What a framework's agent may know about the run that it is played for."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import msgspec

from dragoman.core.agent import Run
from dragoman.core.content import Json
from dragoman.core.ids import RunId, SessionId, UserId


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """The run for which dependencies or a context are made; read only."""

    user: UserId
    session_id: SessionId
    run_id: RunId
    options: Mapping[str, str]
    """The agent's effective options, including defaults. Secrets are in plain text."""
    forwarded: Json
    """What the client sent with the run for the agent's own use. None if it sent nothing."""
    state: Json
    """The state that is shared with the application. None if there is none."""
    time_zone: str
    """The IANA zone of the run's events."""

    @classmethod
    def of(cls, run: Run) -> Self:
        """What is known about a run."""
        forwarded = run.metadata.forwarded
        return cls(
            user=run.user,
            session_id=run.session_id,
            run_id=run.run_id,
            options=run.options,
            forwarded=None if forwarded is msgspec.UNSET else forwarded,
            state=run.state,
            time_zone=run.time_zone,
        )


async def value_for(given: Any, info: RunInfo) -> Any:  # noqa: ANN401  # the framework's own type
    """A wrapper's `deps` or `context` for one run: the value itself, or what the function returns for the run."""
    if not (inspect.isroutine(given) or isinstance(given, partial)):
        return given
    value = given(info)
    return await value if inspect.isawaitable(value) else value
