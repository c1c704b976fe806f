"""The 20 rules of `POST /runs`: each on both sides of its border, alone and in pairs."""

import json
from collections.abc import Callable
from copy import deepcopy
from itertools import combinations
from typing import Any, cast

import pytest

from dragoman.protocols.agui.run_service.rules import RULES, RuleContext, RuleViolation, check, decode_run
from dragoman.protocols.agui.run_service.wire import RunAgentInput
from tests.protocols.agui.run_service import RunServiceClient, new_thread, problem, run_input
from tests.requirements import requirement
from tests.servers import AppServer

Json = Any
Body = dict[str, Json]
Change = Callable[[Body], None]

THREAD = "0d8f5c1e-3a52-4a0e-9a5b-0f8a4f0c2b11"
LINK = "https://here/attachments/content/x.png"
PICTURE = {"type": "binary", "mimeType": "image/png", "url": LINK}
TIME = {
    "device_timezone": "America/Los_Angeles",
    "client_now_iso": "2026-03-16T09:12:33-07:00",
    "client_epoch_ms": 1773658353000,
}
WORLD = RuleContext(is_agent=lambda name: name in ("rehearsal", "memory"), is_link=lambda url: url == LINK)


def valid() -> Body:
    body = run_input(THREAD, [{"type": "text", "text": "hi"}, deepcopy(PICTURE)])
    body["forwardedProps"] = {"agent_type": "rehearsal", "client_time": deepcopy(TIME)}
    return body


def user(body: Body) -> Json:
    return next(message for message in body["messages"] if message.get("role") == "user")


def picture(body: Body) -> Json:
    return user(body)["content"][1]


def time(body: Body) -> Json:
    return body["forwardedProps"]["client_time"]


def filler(count: int) -> list[Json]:
    return [{"id": str(place), "role": "system", "content": ""} for place in range(count)]


def setting(part: Callable[[Body], Json], name: str, value: Json) -> Change:
    def change(body: Body) -> None:
        part(body)[name] = value

    return change


def full_body(body: Body) -> Json:
    return body


def props(body: Body) -> Json:
    return body["forwardedProps"]


def pictures(count: int) -> Change:
    return lambda body: user(body)["content"].extend(deepcopy(PICTURE) for _ in range(count - 1))


def text(length: int) -> Change:
    return lambda body: user(body)["content"][0].update(text="🧑" * length)


def without(part: Callable[[Body], Json], name: str) -> Change:
    def change(body: Body) -> None:
        del part(body)[name]

    return change


def user_moved(body: Body) -> None:
    body["messages"].insert(0, filler(1)[0])


def emptied(body: Body) -> None:
    user(body)["content"] = " "


def second_user(body: Body) -> None:
    body["messages"].append({"id": "m-2", "role": "user", "content": "x"})


def padded(size: int) -> Change:
    def change(body: Body) -> None:
        body["state"] = ""
        body["state"] = "x" * (size - len(json.dumps(body).encode()))

    return change


def nothing(body: Body) -> None:
    pass


BREAKING_CHANGES: dict[int, list[Change]] = {
    1: [padded(262_145)],
    2: [
        setting(full_body, "runId", 7),
        setting(full_body, "runId", ""),
        without(full_body, "threadId"),
        setting(full_body, "messages", {}),
        setting(user, "role", "robot"),
        setting(user, "content", None),
        setting(full_body, "tools", [{"name": "x"}]),
        setting(full_body, "context", [{"description": "x", "value": 1}]),
    ],
    3: [
        setting(full_body, "threadId", value)
        for value in (
            "",
            "x",
            THREAD[:-1],
            THREAD.replace("-", ""),
            f"{{{THREAD}}}",
            f"urn:uuid:{THREAD}",
            f" {THREAD}",
            "00000000-0000-0000-0000-000000000000",
        )
    ],
    4: [setting(full_body, "runId", "r" * 129)],
    5: [lambda body: body["messages"].extend(filler(200))],
    6: [second_user, setting(full_body, "messages", []), lambda body: user(body).update(role="system", content="x")],
    7: [user_moved],
    8: [setting(picture, "mimeType", "application/pdf"), setting(picture, "mimeType", "")],
    9: [setting(picture, "data", "aGk="), setting(picture, "data", "")],
    10: [without(picture, "url"), setting(picture, "url", ""), setting(picture, "url", None)],
    11: [pictures(4)],
    12: [setting(picture, "url", "https://elsewhere/x.png")],
    13: [text(10_001)],
    14: [emptied, lambda body: user(body).update(content=""), lambda body: user(body).update(content=[])],
    15: [
        without(full_body, "forwardedProps"),
        setting(full_body, "forwardedProps", None),
        setting(full_body, "forwardedProps", []),
        setting(full_body, "forwardedProps", {}),
        setting(props, "agent_type", ""),
        setting(props, "agent_type", 1),
        setting(props, "agentType", "rehearsal"),
        setting(props, "more", None),
    ],
    16: [setting(props, "agent_type", "memory"), setting(props, "agent_type", "nobody")],
    17: [
        *(
            setting(time, "device_timezone", value)
            for value in ("GMT+8", "PST", "+08:00", "localtime", "posixrules", "Factory", "", None, 8)
        ),
        without(time, "device_timezone"),
    ],
    18: [
        *(
            setting(time, "client_now_iso", value)
            for value in (
                "2026-03-16T09:12:33",
                "2026-03-16 09:12:33Z",
                "2026-02-30T09:12:33Z",
                "2026-03-16T24:12:33Z",
                "2026-03-16T09:12:61Z",
                "2026-03-16T09:12:33+24:00",
                "2026-03-16T09:12Z",
                "٢026-03-16T09:12:33Z",
                "",
                None,
                1,
            )
        ),
        without(time, "client_now_iso"),
    ],
    19: [
        *(setting(time, "client_epoch_ms", value) for value in (True, 1.0, "1", None, 1e3)),
        without(time, "client_epoch_ms"),
    ],
    20: [
        setting(time, "more", 1),
        setting(props, "client_time", []),
        setting(props, "client_time", "now"),
    ],
}
"""What breaks each rule, and no earlier one."""

VALID_CHANGES: dict[int, list[Change]] = {
    1: [padded(262_144)],
    2: [
        setting(full_body, "state", None),
        setting(full_body, "unknown", {"a": 1}),
        setting(user, "unknown", 1),
        setting(user, "name", None),
        setting(user, "encryptedValue", None),
        setting(full_body, "tools", []),
        setting(full_body, "context", [{"description": "a", "value": "b"}]),
        lambda body: body["messages"].extend(
            [
                {"id": "a", "role": "assistant", "content": None, "name": None, "encryptedValue": None},
                {
                    "id": "b",
                    "role": "assistant",
                    "toolCalls": [
                        {
                            "id": "c",
                            "type": "function",
                            "function": {"name": "f", "arguments": "{"},
                            "encryptedValue": None,
                        }
                    ],
                },
                {"id": "c", "role": "tool", "content": "", "toolCallId": "c", "error": None, "encryptedValue": None},
                {"id": "d", "role": "system", "content": "", "name": None, "encryptedValue": None},
                {"id": "e", "role": "developer", "content": ""},
                {"id": "f", "role": "reasoning", "content": ""},
                {"id": "g", "role": "activity", "activityType": "PLAN", "content": {"a": None}},
            ]
        ),
    ],
    3: [setting(full_body, "threadId", THREAD.upper())],
    4: [setting(full_body, "runId", "r" * 128), setting(full_body, "runId", "é" * 128)],
    5: [lambda body: body["messages"].extend(filler(199))],
    6: [nothing],
    7: [lambda body: body["messages"].extend(filler(1))],
    8: [setting(picture, "mimeType", "IMAGE/webp")],
    9: [setting(picture, "data", None)],
    10: [nothing],
    11: [pictures(3)],
    12: [nothing],
    13: [text(10_000)],
    14: [lambda body: user(body).update(content=[PICTURE]), lambda body: user(body).update(content="x")],
    15: [without(props, "client_time")],
    16: [nothing],
    17: [
        setting(time, "device_timezone", value)
        for value in ("UTC", "Etc/GMT+8", "Europe/Berlin", "Asia/Calcutta", "US/Pacific")
    ],
    18: [
        setting(time, "client_now_iso", value)
        for value in ("2026-03-16T09:12:33Z", "2026-03-16t09:12:33.123456789z", "2016-12-31T23:59:60Z")
    ],
    19: [setting(time, "client_epoch_ms", value) for value in (0, -1, 10**30)],
    20: [nothing, setting(props, "client_time", None)],
}
"""What lies just inside each rule."""


def cases(changes: dict[int, list[Change]]) -> list[Any]:
    """Each rule's number with each of its changes."""
    return [
        pytest.param(number, change, id=f"{number}-{place}")
        for number, each in changes.items()
        for place, change in enumerate(each)
    ]


def checked(body: Body) -> RunAgentInput:
    run = decode_run(json.dumps(body).encode())
    check(run, WORLD)
    return run


def first_broken(body: Body) -> int | None:
    try:
        checked(body)
    except RuleViolation as broken:
        return broken.rule.number
    return None


@requirement("runs:rules:table")
def test_there_are_twenty_rules_in_order() -> None:
    assert [rule.number for rule in RULES] == list(range(1, 21))
    assert set(BREAKING_CHANGES) == set(VALID_CHANGES) == set(range(1, 21))


@requirement("runs:rules:border")
@pytest.mark.parametrize(("number", "change"), cases(VALID_CHANGES))
def test_a_value_just_inside_a_rule_is_accepted(number: int, change: Change) -> None:
    body = valid()
    change(body)
    assert first_broken(body) is None, number


@requirement("runs:rules:border")
@pytest.mark.parametrize(("number", "change"), cases(BREAKING_CHANGES))
def test_a_value_just_outside_a_rule_is_refused_by_it(number: int, change: Change) -> None:
    body = valid()
    change(body)
    assert first_broken(body) == number


IMPOSSIBLE = {(number, 14) for number in range(8, 14)}
"""A message that is empty has no picture and no long text that could break a rule."""


def broken(body: Body) -> set[int]:
    """All rules from 3 on that a body breaks, whatever their order."""
    run = decode_run(json.dumps(body).encode())
    found = set()
    for rule in RULES[2:]:
        subjects = run.images() if rule.number in (8, 9, 10) else [run]
        try:
            if not all(rule.holds(subject, WORLD) for subject in subjects):  # type: ignore[arg-type]  # see `RULES`
                found.add(rule.number)
        except (
            AttributeError,
            KeyError,
            IndexError,
            TypeError,
            StopIteration,
        ):  # it builds on an earlier rule that is broken
            continue
    return found


def broken_twice(first: int, second: int) -> Body:
    """A body that breaks both rules, put together from what breaks each."""
    for change in BREAKING_CHANGES[first]:
        for other in BREAKING_CHANGES[second]:
            body = valid()
            try:
                other(body)
                change(body)
            except (KeyError, IndexError, TypeError, StopIteration, AttributeError):
                continue  # one took away what the other changes
            if first <= 2 or {first, second} <= broken(body):
                return body
    raise AssertionError(f"no body breaks rules {first} and {second}")


@requirement("runs:rules:order")
@pytest.mark.parametrize(
    ("first", "second"), [pair for pair in combinations(range(1, 21), 2) if pair not in IMPOSSIBLE]
)
def test_the_first_of_two_broken_rules_is_the_answer(first: int, second: int) -> None:
    assert first_broken(broken_twice(first, second)) == first


def with_pictures(*parts: Json) -> Body:
    return run_input(THREAD, list(parts))


@requirement("runs:rules:pictures")
def test_images_are_checked_one_by_one_before_they_are_counted() -> None:
    both = {"type": "binary", "mimeType": "image/png", "data": "aGk="}
    assert first_broken(with_pictures(both)) == 9
    assert first_broken(with_pictures({"type": "binary", "mimeType": "application/pdf"})) == 8
    assert first_broken(with_pictures({**PICTURE, "url": ""}, {**PICTURE, "mimeType": "text/plain"})) == 10
    assert first_broken(with_pictures(PICTURE, PICTURE, PICTURE, {**PICTURE, "url": None})) == 10
    assert first_broken(with_pictures(PICTURE, PICTURE, PICTURE, PICTURE)) == 11


@requirement("runs:rules:image-part")
def test_an_ag_ui_1_0_image_part_means_the_same_as_a_binary_part() -> None:
    def image(**source: Json) -> Body:
        return with_pictures({"type": "image", "source": source})

    assert first_broken(image(type="url", value=LINK)) is None
    assert first_broken(image(type="url", value=LINK, mimeType="image/png")) is None
    assert first_broken(image(type="url", value=LINK, mime_type="text/plain")) == 8
    assert first_broken(image(type="data", value="aGk=", mimeType="image/png")) == 9
    assert first_broken(image(type="file", value="f-1")) == 10
    assert first_broken(image(type="url", value="")) == 10
    assert first_broken(image(type="url", value="https://elsewhere/x.png")) == 12
    assert first_broken(image(value=LINK)) == 2


# --- over the wire ----------------------------------------------------------------------------------------------------


@pytest.fixture
def alice(app_server: AppServer) -> RunServiceClient:
    return RunServiceClient(app_server.connection, app_server.key("alice"))


@requirement("runs:rules:messages", "runs:errors:problem")
@pytest.mark.parametrize("number", range(1, 21))
async def test_a_broken_rule_is_answered_with_its_message_and_changes_nothing(
    alice: RunServiceClient, number: int
) -> None:
    rule, thread = RULES[number - 1], new_thread()
    body = valid()
    if number not in range(8, 13):  # the picture's link is none of this server's
        del user(body)["content"][1:]
    body["threadId"] = thread
    BREAKING_CHANGES[number][0](body)
    reply = await alice.post("/runs", body)
    expected = problem(422, rule.code, rule.message)
    if number == 2:
        expected["errors"] = [{"loc": ["runId"], "msg": reply.json["errors"][0]["msg"]}]
    assert (reply.status, reply.json) == (422, expected)
    unknown = problem(404, "AGENT_SESSION_NOT_FOUND", "there is no such thread")
    assert (await alice.get(f"/history?threadId={thread}")).json == unknown


@requirement("runs:rules:messages")
@pytest.mark.parametrize("change", BREAKING_CHANGES[6])
async def test_a_request_without_one_user_message_is_refused_also_if_it_has_none(
    alice: RunServiceClient, change: Change
) -> None:
    body = valid()
    change(body)
    reply = await alice.post("/runs", body)
    assert (reply.status, reply.json["detail"]) == (422, RULES[5].message)


WRONG_SHAPES: tuple[tuple[Change, list[str | int]], ...] = (
    (without(full_body, "threadId"), ["threadId"]),
    (setting(full_body, "messages", {}), ["messages"]),
    (setting(user, "role", "robot"), ["messages", 0, "role"]),
    (setting(user, "content", 1), ["messages", 0, "content"]),
    (setting(picture, "mimeType", 1), ["messages", 0, "content", 1, "mimeType"]),
    (without(picture, "mimeType"), ["messages", 0, "content", 1, "mimeType"]),
    (setting(full_body, "tools", [{"name": "x", "description": "x"}]), ["tools", 0, "parameters"]),
)


@requirement("runs:rules:shape")
@pytest.mark.parametrize("place", range(len(WRONG_SHAPES)))
def test_a_wrong_shape_names_the_field(place: int) -> None:
    change, location = WRONG_SHAPES[place]
    body = valid()
    change(body)
    with pytest.raises(RuleViolation) as refused:
        checked(body)
    (error,) = cast(list[Json], refused.value.response.facts["errors"])
    assert (refused.value.rule.number, error["loc"]) == (2, location)
    assert error["msg"]


@requirement("runs:rules:shape")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b"null",
        b"\xff",
        b'{"threadId":"\\ud800"}',
        b"[" * 100_000,
        b'{"state":' + b"[" * 200 + b"]" * 200 + b"}",
    ],
)
def test_anything_but_a_json_object_breaks_the_second_rule_and_the_answer_says_why(raw: bytes) -> None:
    with pytest.raises(RuleViolation) as refused:
        decode_run(raw)
    assert refused.value.rule.number == 2
    (error,) = cast(list[Json], refused.value.response.facts["errors"])
    assert error["msg"]


# --- spelling ---------------------------------------------------------------------------------------------------------


@requirement("runs:aliases:every-depth")
def test_snake_case_is_accepted_at_every_depth_of_the_protocols_own_objects() -> None:
    camel = valid()
    camel["parentRunId"] = "r-0"
    camel["messages"] += [
        {
            "id": "a",
            "role": "assistant",
            "toolCalls": [
                {
                    "id": "c",
                    "type": "function",
                    "function": {"name": "f", "arguments": "{}"},
                    "encryptedValue": "x",
                }
            ],
            "encryptedValue": "y",
        },
        {"id": "t", "role": "tool", "content": "", "toolCallId": "c"},
        {"id": "v", "role": "activity", "activityType": "PLAN"},
    ]
    snake = json.loads(json.dumps(camel))
    for old, new in (
        ("threadId", "thread_id"),
        ("runId", "run_id"),
        ("parentRunId", "parent_run_id"),
        ("forwardedProps", "forwarded_props"),
    ):
        snake[new] = snake.pop(old)
    snake["messages"][0]["content"][1]["mime_type"] = snake["messages"][0]["content"][1].pop("mimeType")
    call = snake["messages"][1]
    call["tool_calls"] = call.pop("toolCalls")
    call["encrypted_value"] = call.pop("encryptedValue")
    call["tool_calls"][0]["encrypted_value"] = call["tool_calls"][0].pop("encryptedValue")
    snake["messages"][2]["tool_call_id"] = snake["messages"][2].pop("toolCallId")
    snake["messages"][3]["activity_type"] = snake["messages"][3].pop("activityType")
    assert checked(snake) == checked(camel)


@requirement("runs:aliases:opaque")
def test_names_inside_opaque_values_are_unchanged() -> None:
    body = valid()
    body["state"] = {"thread_id": 1, "tool_calls": [{"mime_type": 2}]}
    body["tools"] = [{"name": "t", "description": "", "parameters": {"run_id": {"tool_call_id": 1}}}]
    run = checked(body)
    assert run.state == body["state"]
    assert run.tools is not None
    assert run.tools[0].parameters == body["tools"][0]["parameters"]
    body["forwardedProps"] = {"agentType": "rehearsal"}
    assert first_broken(body) == 15


@requirement("runs:aliases:camel-wins")
def test_camel_case_wins_over_snake_case() -> None:
    body = valid()
    body["run_id"] = "other"
    body["forwarded_props"] = {}
    picture = user(body)["content"][1]
    picture["mime_type"] = "text/plain"
    run = checked(body)
    assert (run.run_id, run.images()[0].mime_type) == ("r-1", picture["mimeType"])
