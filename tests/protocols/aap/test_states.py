"""AAP, section 6, as a property: whatever a client sends, in whatever state, the table of states answers.

A small model of a session is kept beside the real one. For each request it says which refusals would be right, or that
the request must be taken, and what then stands in the history.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocols.aap.client import (
    AapClient,
    Message,
    Session,
    assert_unchanged,
    call,
    calls,
    client_tool,
    deny,
    enabled_tools,
    grant,
    result,
    script,
    user,
)
from tests.protocols.aap.stream import MODES, Mode, blocks_of
from tests.requirements import requirement

CANCELLED = "Tool call cancelled: a new user message arrived"
PLAYS = (
    "hello",
    script(call("add", a=1, b=2), {"say": "{result}"}),
    script(call("paint", c=1), {"say": "{result}"}, call("paint", c=2), {"say": "{result}"}),
    script(
        {"say": "so "}, calls(("paint", {}), ("stamp", {"text": "x"}), ("add", {"a": 1, "b": 1})), {"say": "{results}"}
    ),
    script(calls(("stamp", {"text": "a"}), ("stamp", {"text": "b"}))),
    script({"say": "half"}, {"fail": "x"}),
    script({"say": "cut of"}, {"stop": "max_tokens"}),
)


@dataclass(frozen=True)
class Request:
    """What a client sends, before it is known which calls are open."""

    mode: Mode
    answers: tuple[str, ...] = ()
    """For the open calls in order, as far as they go: `skip`, `right`, `deny`, `grant`, `twice`."""
    stray: tuple[str, ...] = ()
    """Answers to other ids: `unknown`, `resolved`."""
    plays: tuple[int, ...] = ()
    is_user_first: bool = False


@dataclass
class Model:
    """What the session should be."""

    open: dict[str, str] = field(default_factory=dict)
    """The open calls and their kinds, `client` or `permission`."""
    resolved: list[str] = field(default_factory=list)

    def messages(self, request: Request) -> list[Message]:
        """The messages of a request, in the order of sending."""
        answers: list[Message] = []
        for (call_id, kind), how in zip(self.open.items(), request.answers, strict=False):
            right = result(call_id, "given") if kind == "client" else grant(call_id)
            answers += {
                "skip": [],
                "right": [right],
                "deny": [deny(call_id, "no")],
                "grant": [grant(call_id)],
                "twice": [right, right],
            }[how]
        for stray in request.stray:
            if stray == "unknown":
                answers.append(result("nowhere", "x"))
            elif self.resolved:
                answers.append(result(self.resolved[0], "x"))
        users = [user(PLAYS[each]) for each in request.plays]
        return [*users, *answers] if request.is_user_first else [*answers, *users]

    def refusals(self, messages: list[Message]) -> set[str]:
        """The codes that would be right, every fault of the request having one; none: it has to be taken."""
        answers = [message for message in messages if message["role"] != "user"]
        ids = [message["toolCallId"] for message in answers]
        codes = set()
        first_user = next((place for place, each in enumerate(messages) if each["role"] == "user"), len(messages))
        granted = [each["toolCallId"] for each in answers if each.get("granted")]
        if (
            not messages
            or len(ids) != len(set(ids))
            or any(each["role"] != "user" for each in messages[first_user:])
            or any(self.open.get(each) == "client" for each in granted)
        ):
            codes.add("invalid_request")
        if any(each not in self.open and each not in self.resolved for each in ids):
            codes.add("unknown_tool_call")
        if any(each in self.resolved for each in ids):
            codes.add("tool_call_resolved")
        if any(each in self.open for each in ids) and not self.open.keys() <= set(ids):
            codes.add("tool_results_missing")
        return codes

    def take(self, messages: list[Message]) -> dict[str, Any]:
        """Settle the open calls. Gives the results that the history must hold for those that no tool gives."""
        given = {each["toolCallId"]: each for each in messages if each["role"] != "user"}
        expected: dict[str, Any] = {}
        for call_id in self.open:
            answer = given.get(call_id)
            if answer is None:
                expected[call_id] = CANCELLED
            elif answer["role"] == "tool":
                expected[call_id] = answer["content"]
            elif not answer["granted"]:
                expected[call_id] = "Tool call denied: no"
        self.resolved += self.open
        self.open = {}
        return expected


requests = st.builds(
    Request,
    mode=st.sampled_from(MODES),
    answers=st.one_of(
        st.just(("right", "right", "right")),
        st.lists(st.sampled_from(["right", "right", "deny", "skip", "grant", "twice"]), max_size=3).map(tuple),
    ),
    stray=st.one_of(
        st.just(()), st.just(()), st.lists(st.sampled_from(["unknown", "resolved"]), max_size=2).map(tuple)
    ),
    plays=st.lists(st.integers(0, len(PLAYS) - 1), max_size=2).map(tuple),
    is_user_first=st.sampled_from([False, False, False, True]),
)


@requirement(
    "aap:idle:user-message",
    "aap:idle:unknown-answer",
    "aap:idle:resolved-answer",
    "aap:waiting:all-answers",
    "aap:waiting:answers-then-user",
    "aap:waiting:some-answers",
    "aap:waiting:user-only",
    "aap:order:refusal-changes-nothing",
)
@settings(max_examples=25)
@given(sent=st.lists(requests, min_size=2, max_size=8))
async def test_every_request_in_every_state_gets_what_the_table_says(
    aap_client: AapClient, sent: list[Request]
) -> None:
    session = await aap_client.create(
        server_tools=[*enabled_tools("add"), *enabled_tools("stamp", trust=False)], tools=[client_tool("paint")]
    )
    model = Model()
    for request in sent:
        await send(session, model, request)


async def send(session: Session, model: Model, request: Request) -> None:
    messages = model.messages(request)
    codes = model.refusals(messages)
    before = await session.history()
    if codes:
        async with assert_unchanged(session):
            reply = await session.post(messages, stream=request.mode)
            assert (reply.status, reply.json["code"] in codes) == (400, True), (reply, codes)
        return
    turn = await session.run(messages, request.mode)
    expected = model.take(messages)
    history = await session.history()
    assert history[: len(before)] == before
    results = {each["toolCallId"]: each["content"] for each in history if each["role"] == "tool"}
    assert {call_id: results[call_id] for call_id in expected} == expected
    assert len(results) == sum(each["role"] == "tool" for each in history)
    users = [each for each in messages if each["role"] == "user"]
    assert [each for each in history[len(before) :] if each["role"] == "user"] == users
    last = [each for each in history if each["role"] == "assistant"][-1]
    uses = [block for block in blocks_of(last["content"]) if block["type"] == "tool_use"]
    model.open = {
        each["toolCallId"]: "client" if each["name"] == "paint" else "permission"
        for each in uses
        if each["toolCallId"] not in results
    }
    model.resolved += [call_id for call_id in results if call_id not in model.resolved]
    info = (await session.info())["_meta"]
    assert (turn.stop == "tool_use", info["status"]) == (bool(model.open), "waiting" if model.open else "idle")
    assert [each["toolCallId"] for each in info.get("pending", [])] == list(model.open)
