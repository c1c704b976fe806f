"""The history: one day at a time, of what people see, and of nothing else."""

from datetime import datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from dragoman.core.ids import UserId
from dragoman.core.inputs import Submit, UserInput
from dragoman.core.run_metadata import RunMetadata
from tests.protocols.agui.run_service import PNG, RunServiceClient, new_thread, problem, run_input, script
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory

Json = Any
CARD = {
    "version": "2.0",
    "locale": "zh-CN",
    "status": "success",
    "theme": "default",
    "root": {
        "type": "stack",
        "appearance": "card",
        "children": [
            {"type": "text", "content": "日程已创建", "role": "title"},
            {"type": "badge", "label": "SUCCESS", "status": "success"},
            {"type": "text", "content": "您的会议日程创建成功", "role": "body"},
        ],
    },
}
EMPTY: Json = {"scope": "history_day", "threadId": None, "day": None, "hasMore": False, "messages": []}


@pytest.fixture
def alice(app_server: AppServer) -> RunServiceClient:
    return RunServiceClient(app_server.connection, app_server.key("alice"))


def set_clock(server: AppServer, moment: str) -> None:
    """Set the manual clock, which only goes forward."""
    server.clock.advance(seconds=(datetime.fromisoformat(moment) - server.clock.now()).total_seconds())


def contents(day: Json) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in day["messages"]]


# --- one message ------------------------------------------------------------------------------------------------------


@requirement("runs:history:fields", "runs:history:clock")
async def test_messages_have_the_fields_of_their_role(open_app_server: AppServerFactory) -> None:
    async with open_app_server(manual_clock=True) as server:
        alice, thread = RunServiceClient(server.connection, server.key("alice")), new_thread()
        set_clock(server, "2027-03-15T10:00:00+00:00")
        frames = await alice.play(thread, "hello")
        answer = next(frame.event["messageId"] for frame in frames if frame.type == "TEXT_MESSAGE_START")
        assert await alice.history(thread) == {
            "scope": "history_day",
            "threadId": thread,
            "day": "2027-03-15",
            "hasMore": False,
            "messages": [
                {
                    "role": "user",
                    "id": "m-1",
                    "seq": 1,
                    "content": "hello",
                    "attachments": [],
                    "timestamp": "2027-03-15T10:00:00Z",
                },
                {
                    "role": "assistant",
                    "id": answer,
                    "seq": 2,
                    "content": "Hello! I am the rehearsal agent.",
                    "ui_schema": None,
                    "timestamp": "2027-03-15T10:00:00Z",
                },
            ],
        }


@requirement("runs:history:hidden", "runs:history:seq")
async def test_tool_messages_and_answers_without_text_are_hidden_but_counted(alice: RunServiceClient) -> None:
    thread = new_thread()
    await alice.play(thread, "add 1 and 2", "r-1")
    await alice.play(thread, script({"call": {"name": "add", "input": {"a": 1, "b": 2}}}), "r-2")
    await alice.play(thread, "hello", "r-3")
    listed = [(each["seq"], each["role"]) for each in (await alice.history(thread))["messages"]]
    assert listed == [(1, "user"), (4, "assistant"), (5, "user"), (8, "user"), (9, "assistant")]
    assert "tool" not in str(await alice.history(thread))


@requirement("runs:history:hidden")
async def test_instructions_of_other_protocols_are_hidden(app_server: AppServer, alice: RunServiceClient) -> None:
    session = await app_server.aap_client("alice").create(
        messages=[{"role": "system", "content": "internal"}, {"role": "user", "content": "hi"}]
    )
    day = await alice.history(session.id)
    assert [(each["seq"], each["role"], each["content"]) for each in day["messages"]] == [(2, "user", "hi")]


@requirement("runs:history:internal")
async def test_internal_prompts_are_hidden_and_their_answers_shown(open_app_server: AppServerFactory) -> None:
    async with open_app_server(manual_clock=True) as server:
        alice, thread = RunServiceClient(server.connection, server.key("alice")), new_thread()
        set_clock(server, "2027-03-15T10:00:00+00:00")
        await alice.play(thread, "one", "r-1")
        app: Any = server.connection.app
        for moment, text in (
            ("2027-03-16T10:00:00+00:00", script({"call": {"name": "add", "input": {"a": 1, "b": 1}}})),
            ("2027-03-17T10:00:00+00:00", "prompt"),
        ):
            set_clock(server, moment)
            async with app.engine.session(UserId("alice"), thread) as live:
                internal = Submit(
                    protocol="schedules", messages=(UserInput(content=text),), metadata=RunMetadata(internal=True)
                )
                submitted = await app.engine.start_run(live, internal, by=UserId("alice"))
                await live.until_durable(submitted.seq)
            await alice.events(thread, submitted.run_id)
        day = await alice.history(thread)
        assert (day["day"], day["hasMore"]) == ("2027-03-17", True)
        assert contents(day) == [("assistant", "You said: prompt")]
        assert [each["seq"] for each in day["messages"]] == [7]
        before = await alice.history(thread, day["day"])
        assert (before["day"], before["hasMore"]) == ("2027-03-15", False), "nothing of the day between is visible"


@requirement("runs:history:text")
async def test_text_blocks_are_joined_with_a_newline(alice: RunServiceClient) -> None:
    thread = new_thread()
    await alice.play(thread, [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])
    assert contents(await alice.history(thread))[0] == ("user", "a\nb")


@requirement("runs:history:running")
async def test_an_answer_appears_once_it_is_complete(alice: RunServiceClient) -> None:
    thread = new_thread()
    await alice.submit(run_input(thread, script({"say": "one"}, {"step": True}, {"say": "two"}, {"wait_ms": 600_000})))
    async with alice.watch(thread) as watch:
        await watch.until("TEXT_MESSAGE_CONTENT", 2)
        assert [text for _, text in contents(await alice.history(thread))][1:] == ["one"]
    await alice.post(f"/runs/{thread}/cancel?runId=r-1", b"")
    assert [text for _, text in contents(await alice.history(thread))][1:] == ["one", "two"]


@requirement("runs:history:attachments", "runs:files:no-link-stored")
async def test_images_have_newly_signed_links(open_app_server: AppServerFactory) -> None:
    async with open_app_server(manual_clock=True) as server:
        alice, thread = RunServiceClient(server.connection, server.key("alice")), new_thread()
        stored = (await alice.upload(threadId=thread)).json
        parts = [{"type": "text", "text": "see"}, {"type": "binary", "mimeType": "image/png", "url": stored["url"]}]
        await alice.play(thread, parts)
        server.clock.advance(hours=5)
        await server.restart()
        alice = RunServiceClient(server.connection, server.key("alice"))
        message = (await alice.history(thread))["messages"][0]
        assert message["content"] == "see"
        (attachment,) = message["attachments"]
        assert attachment["mimeType"] == "image/png"
        assert attachment["url"] != stored["url"]
        reply = await RunServiceClient(server.connection, None, base="").get(
            attachment["url"].removeprefix("http://127.0.0.1:8000")
        )
        assert (reply.status, reply.headers["content-type"], reply.body) == (200, "image/png", PNG)
        assert stored["url"].encode() not in (server.folder / "dragoman.db").read_bytes()
        aap = await server.aap_client("alice").get(f"/sessions/{thread}/history?type=full")
        assert aap.json["history"]["full"][0]["content"][1]["url"].startswith("data:image/png;base64,iVBORw0KGgo")


@requirement("runs:history:attachments")
async def test_images_of_other_protocols_keep_their_urls(app_server: AppServer, alice: RunServiceClient) -> None:
    large = "data:image/png;base64," + "A" * 40_000
    urls = ["https://example.org/x.png", "data:image/gif;base64,R0lG", large]
    session = await app_server.aap_client("alice").create(
        messages=[{"role": "user", "content": [{"type": "image", "url": url} for url in urls]}]
    )
    (message,) = (await alice.history(session.id))["messages"]
    assert message["content"] == ""
    kinds = ["image/*", "image/gif", "image/png"]
    assert message["attachments"] == [{"mimeType": kind, "url": url} for kind, url in zip(kinds, urls, strict=True)]


# --- cards ------------------------------------------------------------------------------------------------------------


@requirement("runs:ui-schema:same-compiler", "runs:ui-schema:seed")
async def test_a_card_is_the_same_in_the_event_and_in_the_history(alice: RunServiceClient) -> None:
    thread = new_thread()
    frames = await alice.play(thread, script({"say": "好的"}, {"card": CARD}))
    end = next(frame.event for frame in frames if frame.type == "TEXT_MESSAGE_END")
    assert end["ui_schema"] == CARD
    assert (await alice.history(thread))["messages"][1]["ui_schema"] == CARD


@requirement("runs:ui-schema:belongs")
async def test_a_card_belongs_to_the_open_or_the_next_answer(alice: RunServiceClient) -> None:
    def badge(label: str) -> Json:
        return {"card": {"type": "badge", "label": label}}

    thread = new_thread()
    frames = await alice.play(
        thread,
        script(
            badge("replaced"),
            badge("first"),
            {"say": "one"},
            {"step": True},
            {"say": "two"},
            {"call": {"name": "add", "input": {"a": 1, "b": 1}}},
            badge("third"),
            {"say": "three"},
            {"step": True},
            badge("alone"),
        ),
    )
    await alice.play(thread, "hello", "r-2")
    ends = [frame.event.get("ui_schema") for frame in frames if frame.type == "TEXT_MESSAGE_END"]
    labels = [None if each is None else each["root"]["children"][0]["label"] for each in ends]
    assert labels == ["first", None, "third", "alone"]
    listed = [each["ui_schema"] for each in (await alice.history(thread))["messages"] if each["role"] == "assistant"]
    assert listed == [*ends, None]


@requirement("runs:ui-schema:alone")
@pytest.mark.parametrize("after", [[], [{"call": {"name": "add", "input": {"a": 1, "b": 1}}}], [{"fail": "x"}]])
async def test_a_card_without_words_is_an_answer_in_the_events_and_in_the_history(
    alice: RunServiceClient, after: list[Json]
) -> None:
    thread = new_thread()
    frames = await alice.play(thread, script({"image": "https://example.org/x.png"}, {"card": CARD}, *after))
    (end,) = [frame.event for frame in frames if frame.type == "TEXT_MESSAGE_END"]
    assert (end["answer"], end["ui_schema"]) == ("", CARD)
    (answer,) = (await alice.history(thread))["messages"][1:]
    assert (answer["id"], answer["content"], answer["ui_schema"]) == (end["messageId"], "", CARD)


@requirement("runs:ui-schema:bad-hint")
async def test_an_invalid_card_is_dropped_and_fails_nothing(alice: RunServiceClient) -> None:
    cards: list[Json] = [{}, {"root": 1}, {"type": "badge"}, {"version": "1.0", "root": {"type": "divider"}}]
    for card in cards:
        thread = new_thread()
        frames = await alice.play(thread, script({"say": "x"}, {"card": card}))
        assert frames[-1].type == "RUN_FINISHED"
        assert "ui_schema" not in next(frame.event for frame in frames if frame.type == "TEXT_MESSAGE_END")
        assert (await alice.history(thread))["messages"][1]["ui_schema"] is None


@requirement("runs:ui-schema:faults")
async def test_what_is_wrong_with_a_card_is_logged_for_its_author_and_the_rest_is_shown(
    alice: RunServiceClient,
) -> None:
    title = {"type": "text", "content": "Trip", "role": "title"}
    image = {"type": "image", "url": "https://example.org/x.png"}
    prices = {"type": "kv", "items": [{"label": "Train", "value": 49.9}]}
    card = {"root": {"type": "stack", "children": [title, image, prices]}}
    with capture_logs() as logs:
        frames = await alice.play(new_thread(), script({"say": "x"}, {"card": card}))
    (end,) = [frame.event for frame in frames if frame.type == "TEXT_MESSAGE_END"]
    assert end["ui_schema"]["root"]["children"] == [
        title,
        {**image, "alt": ""},
        {"type": "kv", "items": [{"label": "Train", "value": "49.9"}]},
    ]
    (logged,) = [each for each in logs if each["event"] == "card is not valid"]
    assert (logged["agent"], logged["log_level"], len(logged["faults"])) == ("rehearsal", "warning", 2)
    assert logged["faults"][0].startswith("root.children[1].alt: missing")


@requirement("runs:ui-schema:locale")
async def test_the_locale_is_that_of_the_profile_when_the_run_began(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        alice, thread = RunServiceClient(server.connection, server.key("alice")), new_thread()
        text = script({"say": "x"}, {"card": {"type": "divider"}})
        await alice.play(thread, text, "r-1")
        await alice.request("PATCH", "/profile", b'{"settings":{"locale":"de"}}', content_type="application/json")
        await alice.play(thread, text, "r-2")
        for _ in range(2):
            ends = [
                frame.event
                for run in ("r-1", "r-2")
                for frame in await alice.events(thread, run)
                if frame.type == "TEXT_MESSAGE_END"
            ]
            assert [each["ui_schema"]["locale"] for each in ends] == ["en", "de"]
            listed = (await alice.history(thread))["messages"]
            assert [each["ui_schema"]["locale"] for each in listed if each["role"] == "assistant"] == ["en", "de"]
            await alice.request("PATCH", "/profile", b'{"settings":{"locale":"fr"}}', content_type="application/json")


# --- days -------------------------------------------------------------------------------------------------------------


@requirement("runs:history:day", "runs:history:before", "runs:history:has-more")
async def test_days_are_paged_across_months_and_clock_changes(open_app_server: AppServerFactory) -> None:
    """The server's zone and its days of 23 and 25 hours mean nothing: a day is the UTC date."""
    moments = (
        "2027-01-31T23:59:59.999999+00:00",
        "2027-02-01T00:00:00+00:00",
        "2027-02-28T12:00:00+00:00",
        "2027-03-01T00:30:00+00:00",
        "2027-03-14T09:59:00+00:00",  # clocks in America go forward
        "2027-03-14T10:01:00+00:00",
        "2027-03-28T00:59:00+00:00",  # and in Europe
        "2027-03-28T01:01:00+00:00",
        "2027-10-31T00:30:00+00:00",  # and back
        "2027-10-31T01:30:00+00:00",
        "2027-12-31T23:30:00+00:00",
        "2028-01-01T00:30:00+00:00",
        "2028-02-29T12:00:00+00:00",
    )
    async with open_app_server(manual_clock=True) as server:
        alice, thread = RunServiceClient(server.connection, server.key("alice")), new_thread()
        for place, moment in enumerate(moments):
            set_clock(server, moment)
            await alice.play(thread, f"at {moment}", f"r-{place}")
        days = sorted({moment[:10] for moment in moments}, reverse=True)
        before = None
        seqs: list[int] = []
        for place, day in enumerate(days):
            page = await alice.history(thread, before)
            assert (page["day"], page["hasMore"]) == (day, place < len(days) - 1)
            own = [f"at {moment}" for moment in moments if moment.startswith(day)]
            assert [each["content"] for each in page["messages"] if each["role"] == "user"] == own
            assert {each["timestamp"][:10] for each in page["messages"]} == {day}
            seqs = [each["seq"] for each in page["messages"]] + seqs
            before = page["day"]
        assert seqs == list(range(1, 2 * len(moments) + 1))
        nothing: Json = {"scope": "history_day", "threadId": thread, "day": None, "hasMore": False, "messages": []}
        assert await alice.history(thread, before) == nothing
        assert (await alice.history(thread, "2027-06-01"))["day"] == "2027-03-28"
        assert (await alice.history(thread, "9999-12-31"))["day"] == "2028-02-29"


@requirement("runs:history:day")
async def test_an_answer_after_midnight_belongs_to_the_next_day(open_app_server: AppServerFactory) -> None:
    async with open_app_server(manual_clock=True) as server:
        alice, thread = RunServiceClient(server.connection, server.key("alice")), new_thread()
        set_clock(server, "2027-04-30T23:59:00+00:00")
        await alice.submit(run_input(thread, script({"call": {"name": "stamp", "input": {"text": "x"}}}, {"say": "y"})))
        frames = await alice.events(thread, "r-1")
        set_clock(server, "2027-05-01T00:01:00+00:00")
        call = frames[1].event["toolCallId"]
        answered = await alice.post(f"/runs/{thread}/answers", {"answers": [{"callId": call, "granted": True}]})
        await alice.events(thread, answered.json["runId"])
        page = await alice.history(thread)
        assert (page["day"], page["hasMore"], contents(page)) == ("2027-05-01", True, [("assistant", "y")])
        assert [each["seq"] for each in page["messages"]] == [4]
        assert [each["seq"] for each in (await alice.history(thread, "2027-05-01"))["messages"]] == [1]


@requirement("runs:history:seq")
async def test_pages_are_consistent_for_a_long_thread(alice: RunServiceClient) -> None:
    thread = new_thread()
    steps = [each for place in range(24) for each in ({"say": f"{place}"}, {"step": True})]
    for place in range(12):
        await alice.play(thread, script(*steps), f"r-{place}")
    messages = (await alice.history(thread))["messages"]
    assert [each["seq"] for each in messages] == list(range(1, 12 * 25 + 1))


@requirement("runs:history:newest")
async def test_without_a_thread_id_the_newest_thread_is_shown(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        alice, one, two = RunServiceClient(server.connection, server.key("alice")), new_thread(), new_thread()
        assert await alice.history() == EMPTY
        await alice.play(one, "first")
        await alice.play(two, "second")
        await alice.play(one, "again", "r-2")
        day = await alice.history()
        assert (day["threadId"], contents(day)[0]) == (two, ("user", "second"))
        assert await RunServiceClient(server.connection, server.key("bob")).history() == EMPTY


@requirement("runs:history:before")
@pytest.mark.parametrize(
    "before", ["", "x", "2027-3-1", "2027-02-30", "20270301", "2027-03-01T00:00:00Z", "٢027-01-01"]
)
async def test_a_malformed_day_is_422(alice: RunServiceClient, before: str) -> None:
    reply = await alice.get(f"/history?before={''.join(f'%{byte:02x}' for byte in before.encode())}")
    expected = problem(422, "AGENT_RUN_INPUT_INVALID", "before must be a date such as 2026-03-15")
    assert (reply.status, reply.json) == (422, expected)
