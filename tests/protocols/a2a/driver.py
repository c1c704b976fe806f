"""A2A's driver of the conversation suite. An agent is opaque: of a run only the texts are observed."""

from typing import Any, Literal

from tests.conversations import (
    Allow,
    Answer,
    Choose,
    Deny,
    Feature,
    Input,
    Observation,
    ObservedPrompt,
    ObservedText,
    Outcome,
    Prompt,
    Server,
    Setup,
    Stop,
)
from tests.protocols.a2a.client import A2aClient, Dialect, TaskStream, answers, asked, said, state_of, text_in

Json = Any

STOPS: dict[str, Stop] = {"input-required": "tool_use", "auth-required": "tool_use"}


class A2aDriver:
    """One context over A2A, in a version over a binding."""

    features: frozenset[Feature] = frozenset({"permissions", "questions", "sub-agents", "stop", "rejoin"})
    observable: frozenset[type] = frozenset({ObservedPrompt, ObservedText})
    stops: dict[Stop, Stop]

    def __init__(self, dialect: Dialect = "rpc") -> None:
        self.stops = {}
        self.dialect = dialect
        self._client: A2aClient | None = None
        self._context: Json = {}
        self._task: Json = {}
        self._seen = 0
        self._stream: TaskStream | None = None

    def connect(self, server: Server) -> None:
        self._client = A2aClient(server.connection, server.key("alice"), dialect=self.dialect)

    async def begin(self, setup: Setup) -> None:
        """A context begins with its first message."""

    @property
    def client(self) -> A2aClient:
        assert self._client is not None, "it is connected first"
        return self._client

    async def run(self, user_input: Input) -> Outcome:
        if isinstance(user_input, Prompt):
            self._seen = 0
            return self._outcome(await self.client.send(user_input.text, **self._context))
        given = [data_of(each, call) for each, call in zip(user_input.answers, asked(self._task), strict=True)]
        return self._outcome(await self.client.send(answers(*given), taskId=self._task["id"]))

    async def start(self, user_input: Prompt, after_text: str) -> None:
        self._seen = 0
        self._stream = await self.client.open(user_input.text, **self._context)
        await self._stream.until_text(after_text)

    async def rejoin(self) -> Outcome:
        """Read on after the last event, and compare with the task."""
        before = self._stream
        assert before is not None
        stream = await self.client.subscribe(before.task_id, after=before.ids[-1])
        await stream.rest()
        task = await self.client.get(before.task_id)
        assert text_in([*before.events, *stream.events]) == said(task)
        return self._outcome(task)

    async def interrupt(self, how: Literal["delete", "stop"]) -> Outcome:
        assert how == "stop", "A2A has no way to delete a context"
        assert self._stream is not None
        task = await self.client.cancel(self._stream.task_id)
        await self._stream.rest()
        assert self._stream.statuses()[-1] == "canceled"
        return self._outcome(task)

    async def history(self) -> list[Observation]:
        raise AssertionError("a task has its own history only")

    async def is_gone(self) -> bool:
        raise AssertionError("A2A has no way to delete a context")

    def _outcome(self, task: Json) -> Outcome:
        self._task, self._context = task, {"contextId": task["contextId"]}
        text = said(task)[self._seen :]
        self._seen += len(text)
        state = state_of(task)
        stop: Stop = STOPS.get(state) or task["metadata"]["stopReason"]
        observed: list[Observation] = [ObservedText(text)] if text else []
        return Outcome(observed, stop)


def data_of(answer: Answer, call: Json) -> Json:
    """An answer to a call as data."""
    match answer:
        case Allow():
            return {"callId": call["callId"], "granted": True}
        case Deny(_, reason):
            return {"callId": call["callId"], "granted": False, **({"reason": reason} if reason else {})}
        case Choose(selections, custom):
            chosen: Json = {"custom": custom} if custom else {"selections": {"0": list(selections)}}
            return {"callId": call["callId"], **chosen}
        case _:
            raise AssertionError("a calling agent runs no tools")
