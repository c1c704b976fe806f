"""The rehearsal agent: every step of its scripts."""

# Large: one test for each step of a script.

import asyncio
import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.agents.rehearsal.agent import rehearsal, rehearsal_bare
from dragoman.core.agent import Agent, AgentError
from dragoman.core.content import (
    AssistantMessage,
    Block,
    Call,
    Data,
    Image,
    Message,
    SystemMessage,
    Text,
    Thinking,
    ToolMessage,
    Usage,
    UserMessage,
)
from dragoman.core.events import PlanStep, PlanUpdated
from dragoman.core.ids import ROOT, CallId, MessageId
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.tools import AgentSpec, Capabilities, SecretOption, SelectOption, TextOption
from tests.agents.in_memory_run import DRAIN_AFTER, InMemoryStarts, MemoryRun, Session

Json = Any


def session(agent: Agent | None = None, **settings: Any) -> Session:
    return Session(agent or rehearsal(InMemoryStarts()), **settings)


def script(*steps: Json) -> str:
    return json.dumps({"script": steps})


def call(name: str, **arguments: Json) -> Json:
    return {"call": {"name": name, "input": arguments}}


def called(name: str, **arguments: Json) -> Call:
    return Call(call_id=CallId(""), name=name, input=arguments)


def calls(*names: str) -> Json:
    return {"calls": [{"name": name, "input": {"text": name}} for name in names]}


async def blocks(*steps: Json, **settings: Any) -> list[list[Block]]:
    """The model steps that a script produces."""
    playing = session(**settings)
    assert await playing.send(script(*steps)) == "end_turn"
    return playing.blocks()


async def text(*steps: Json, **settings: Any) -> str:
    playing = session(**settings)
    await playing.send(script(*steps))
    return playing.text()


# --- what it declares -------------------------------------------------------------------------------------------------


def test_the_rehearsal_agent_declares_everything() -> None:
    spec = rehearsal(InMemoryStarts()).spec
    assert spec.name == "rehearsal"
    assert spec.capabilities == Capabilities(
        history_full=True, history_compacted=True, client_tools=True, image_http=True, image_data=True
    )
    assert spec.capabilities.stream_modes == {"delta", "message", "none"}
    assert [(type(option), option.name, option.default) for option in spec.options] == [
        (TextOption, "greeting", "Hello!"),
        (SelectOption, "style", "plain"),
        (TextOption, "language", "English"),
        (SecretOption, "token", ""),
    ]
    assert isinstance(spec.options[1], SelectOption)
    assert spec.options[1].options == ("plain", "loud")
    assert spec.builtins == {"AskUserQuestion", "Agent"}


def test_the_bare_agent_declares_nothing_but_runs_every_script() -> None:
    spec = rehearsal_bare(InMemoryStarts()).spec
    assert (spec.name, spec.options, spec.exposed()) == ("rehearsal-bare", (), ())
    assert spec.capabilities == AgentSpec(name="any").capabilities


async def test_the_rehearsal_agent_and_the_bare_one_run_scripts_identically() -> None:
    play = script({"think": "t"}, call("add", a=1, b=2), {"say": "{result}"}, {"stop": "refusal"})
    full, bare = session(), session(rehearsal_bare(InMemoryStarts()))
    assert await full.send(play) == await bare.send(play) == "refusal"
    assert full.messages == bare.messages


# --- what it reads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("hello", [[Text("Hello! I am the rehearsal agent.")]]),
        ("add 1 and -3", [[called("add", a=1, b=-3)], [Text("The sum is -2.")]]),
        ("think", [[Thinking("Let me think."), Text("Done thinking.")]]),
        ("recall", [[Text("none")]]),
        (" Grüße, {result} ", [[Text("You said:  Grüße, {result} ")]]),
        ("", [[Text("You said: ")]]),
    ],
)
async def test_some_texts_have_a_fixed_answer_and_all_others_are_echoed(text: str, steps: list[list[Block]]) -> None:
    playing = session()
    assert await playing.send(text) == "end_turn"
    assert playing.blocks() == steps


async def test_text_blocks_are_joined_and_images_ignored() -> None:
    playing = session()
    await playing.send((Text("hel"), Image("https://images.example/a.png"), Text("lo")))
    assert playing.text() == "Hello! I am the rehearsal agent."


async def test_ask_me_waits_and_says_the_choice() -> None:
    playing = session()
    assert await playing.send("ask me") == "tool_use"
    (open_call,) = playing.open
    assert open_call.call.name == "AskUserQuestion"
    assert [each["label"] for each in open_call.call.input["questions"][0]["options"]] == ["staging", "production"]
    playing.answer("{}", raw={"answers": [{"question": "q", "labels": ["production"], "custom": None}]})
    assert await playing.play() == "end_turn"
    assert playing.text() == "You chose production."


async def test_no_step_of_an_invalid_script_runs() -> None:
    playing = session()
    with pytest.raises(AgentError) as raised:
        await playing.send(script({"say": "x"}, call("add", a=1, b=1), {"dance": 1}))
    assert (raised.value.code, raised.value.message) == ("bad_script", "step 3: there is no step `dance`")
    assert (playing.reply_messages(), playing.deltas) == ([], [])


async def test_an_empty_script_says_nothing() -> None:
    playing = session()
    assert await playing.send(script()) == "end_turn"
    assert playing.reply_messages() == []


async def test_results_without_any_user_message_are_ignored() -> None:
    uses = AssistantMessage(id=MessageId("a"), content=(called("paint"),))
    playing = session(history=[uses])
    assert await playing.play() == "end_turn"
    assert playing.messages == [uses]


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "deltas"),
    [
        ({"say": "0123456789abcdefX"}, ["01234567", "89abcdef", "X"]),
        ({"say": "Grüße 🧑‍🚀", "size": 2}, ["Gr", "üß", "e ", "🧑\u200d", "🚀"]),
        ({"say": ["on", "e", "", "three and more"], "size": 2}, ["on", "e", "", "three and more"]),
        ({"say": ["", "", "a"]}, ["a"]),
        ({"say": ""}, []),
        ({"say": []}, []),
        ({"say": "abc", "size": 1, "every_ms": 0.01}, ["a", "b", "c"]),
        ({"emit": {"count": 3, "text": "tok "}}, ["tok "] * 3),
        ({"emit": {"count": 3, "text": "{i}/{i3};"}}, ["0/000;", "1/001;", "2/002;"]),
        ({"emit": {"count": 2, "text": "{result}{"}}, ["{result}{"] * 2),
        ({"emit": {"count": 2, "text": "100%{i} %s {{i}}{i3}{i3}"}}, ["100%0 %s {0}000000", "100%1 %s {1}001001"]),
        ({"emit": {"count": 2, "text": "x", "every_ms": 0.01}}, ["x", "x"]),
        ({"emit": {"count": 0, "text": "x"}}, []),
        ({"burst": 3}, ["x" * 1000] * 3),
        ({"burst": 0}, []),
    ],
)
async def test_text_is_split_into_deltas(step: Json, deltas: list[str]) -> None:
    playing = session()
    await playing.send(script(step))
    assert playing.deltas == [("text", delta) for delta in deltas]
    assert playing.blocks() == ([[Text("".join(deltas))]] if deltas else [])


async def test_thinking_is_split_into_deltas() -> None:
    playing = session()
    await playing.send(script({"think": "0123456789"}, {"think": ["a", "b"], "every_ms": 0.01}))
    assert playing.deltas == [("thinking", each) for each in ("01234567", "89", "a", "b")]
    assert playing.blocks() == [[Thinking("0123456789"), Thinking("ab")]]


async def test_every_step_is_its_own_block() -> None:
    said = [{"say": ["a", "b"]}, {"say": "c"}, {"emit": {"count": 2, "text": "d"}}, {"option": "style"}]
    assert await blocks(*said, options={"style": "loud"}) == [[Text("ab"), Text("c"), Text("dd"), Text("loud")]]


async def test_many_deltas_yield_to_other_tasks_only_when_the_run_requires_it() -> None:
    playing = session()
    await playing.send(script({"emit": {"count": DRAIN_AFTER, "text": "x"}}))
    assert playing.drains == 0
    await playing.send(script({"emit": {"count": 5 * DRAIN_AFTER + 1, "text": "{i}"}}))
    assert playing.drains == 5
    await playing.send(script({"burst": 3 * DRAIN_AFTER}))
    assert playing.drains == 6


@pytest.mark.parametrize(
    "step", [{"say": "abcd", "size": 1}, {"think": ["a", "b"]}, {"emit": {"count": 4, "text": "x"}}]
)
async def test_without_a_pause_no_other_task_runs_between_deltas(step: Json) -> None:
    playing, turns = session(), 0

    async def counting() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(counting())
    await playing.send(script(step))
    assert turns == 0
    other.cancel()


@pytest.mark.parametrize(
    ("step", "pauses"),
    [
        ({"say": "abc", "size": 1, "every_ms": 5}, [5, 3, 3]),
        ({"think": ["a", "b"], "every_ms": 7}, [7, 5]),
        ({"emit": {"count": 4, "text": "x", "every_ms": 1}}, [1, 0, 0, 0]),
        ({"wait_ms": 250}, [250]),
    ],
)
async def test_pauses_follow_the_schedule_of_the_script(
    step: Json, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sleep ends 2 ms late, and the next pause compensates for it."""
    slept: list[float] = []
    now_ms = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now_ms
        slept.append(round(seconds * 1000, 6))
        now_ms += seconds * 1000 + 2

    own = SimpleNamespace(**vars(asyncio) | {"sleep": sleep})  # servers of other tests may share this loop, and sleep
    monkeypatch.setattr("dragoman.agents.rehearsal.player.asyncio", own)
    monkeypatch.setattr("dragoman.agents.rehearsal.player.monotonic", lambda: now_ms / 1000)
    await session().send(script(step))
    assert slept == pauses


async def test_waiting_can_be_cancelled() -> None:
    playing = session()
    waiting = asyncio.create_task(playing.send(script({"say": "one"}, {"wait_ms": 600_000}, {"say": "two"})))
    async with asyncio.timeout(60):
        await asyncio.sleep(0)  # before the wait, no other task gets a turn
        assert playing.deltas == [("text", "one")]
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert playing.deltas == [("text", "one")]


# --- other blocks -----------------------------------------------------------------------------------------------------


async def test_images_and_data_are_blocks_of_the_answer() -> None:
    played = await blocks({"say": "see "}, {"image": "https://a.example/b.png"}, {"data": {"n": [1]}}, {"say": "there"})
    assert played == [[Text("see "), Image("https://a.example/b.png"), Data({"n": [1]}), Text("there")]]
    assert await blocks({"image": "data:image/png;base64,AA=="}) == [[Image("data:image/png;base64,AA==")]]


async def test_a_plan_and_a_card_add_no_text() -> None:
    playing = session()
    plan = {"status": "in_progress", "steps": [{"title": "a", "status": "done"}, {"title": "b", "status": "pending"}]}
    await playing.send(script({"plan": plan}, {"card": {"type": "text", "text": "c"}}))
    assert playing.plans == [PlanUpdated(status="in_progress", steps=(PlanStep("a", "done"), PlanStep("b", "pending")))]
    assert playing.cards == [{"type": "text", "text": "c"}]
    assert [message.content for message in playing.reply_messages()] == [()]


# --- calls ------------------------------------------------------------------------------------------------------------


async def test_a_call_ends_the_model_step_and_the_next_step_has_its_result() -> None:
    played = await blocks({"say": "a"}, call("lookup", q="tea"), {"say": "b {result}"}, call("whisper", text="x"))
    assert played == [[Text("a"), called("lookup", q="tea")], [Text("b looked up tea"), called("whisper", text="x")]]


async def test_calls_are_one_step_and_their_results_keep_the_order() -> None:
    played = await blocks(calls("stamp", "whisper", "stamp"), {"say": "{results} / {result}"})
    assert len(played) == 2
    assert played[1] == [Text("stamped stamp, whispered whisper, stamped stamp / stamped stamp")]


@pytest.mark.parametrize(
    ("steps", "expected_text"),
    [
        ((calls("stamp", "whisper"), call("lookup", q="x")), "looked up x; stamped stamp, whispered whisper"),
        ((call("lookup", q="x"), calls("stamp", "whisper")), "whispered whisper; stamped stamp, whispered whisper"),
        ((call("lookup", q="x"), call("lookup", q="y")), "looked up y; looked up y"),
        ((calls("stamp"), {"step": True}), "stamped stamp; stamped stamp"),
        ((), "{result}; {results}"),
    ],
)
async def test_the_placeholder_results_has_those_of_the_last_calls(steps: tuple[Json, ...], expected_text: str) -> None:
    assert await text(*steps, {"say": "{result}; {results}"}) == expected_text


async def test_other_braces_remain_and_results_are_not_expanded() -> None:
    steps = (call("lookup", q="{result}"), {"say": "{result} {answer} {RESULT} {} {i} {"}, {"think": "{result}"})
    played = await blocks(*steps)
    assert played[1] == [Text("looked up {result} {answer} {RESULT} {} {i} {"), Thinking("looked up {result}")]


@pytest.mark.parametrize("name", ["stamp", "boom", "nothing"])
async def test_a_failed_call_has_a_result(name: str) -> None:
    said = {
        "stamp": "Tool execution failed: text: missing",
        "boom": "Tool execution failed: boom",
        "nothing": "Tool not found: nothing",
    }
    assert await text(call(name), {"say": "{result}"}) == said[name]


@pytest.mark.parametrize(
    ("output", "expected_text"),
    [
        ("out", "out"),
        ("", ""),
        (7, "7"),
        (None, "null"),
        ([], "[]"),
        ({"b": 1, "a": ["ü", None]}, '{"b":1,"a":["ü",null]}'),
        ({"_meta": {"ui": 1}, "rest": 1}, '{"rest":1}'),
    ],
)
@pytest.mark.parametrize("server", [None, "maps"])
async def test_a_scripted_tool_returns_the_given_output(server: str | None, output: Json, expected_text: str) -> None:
    playing = session()
    inner = {"name": "inner", "input": {"x": 1}, "output": output}
    step = {"tool": inner} if server is None else {"mcp": {"server": server, **inner}}
    assert await playing.send(script(step, {"say": "={result}"})) == "end_turn"
    assert playing.blocks() == [[called("inner", x=1)], [Text(f"={expected_text}")]]
    (tool,) = playing.call_tools
    assert (tool.declaration.spec.name, tool.declaration.policy.exposed) == ("inner", False)
    assert tool.declaration.server == server


@pytest.mark.parametrize(
    ("content", "expected_text"),
    [
        ("blue", "blue"),
        ((Text("bl"), Text("ue")), "blue"),
        (
            (Text("see"), Image("https://a.example/b.png")),
            '[{"type":"text","text":"see"},{"type":"image","url":"https://a.example/b.png"}]',
        ),
    ],
)
async def test_a_clients_result_continues_with_the_next_step(content: Any, expected_text: str) -> None:
    playing = session(client_tools=["paint"])
    assert await playing.send(script({"say": "so "}, call("paint", c=1), {"say": "{result}"})) == "tool_use"
    playing.answer(content)
    assert await playing.play() == "end_turn"
    assert playing.blocks() == [[Text("so "), called("paint", c=1)], [Text(expected_text)]]


async def test_a_clients_error_is_shown_as_the_model_would_see_it() -> None:
    playing = session(client_tools=["paint"])
    await playing.send(script(call("paint"), {"say": "{result}"}))
    playing.answer("out of paint", is_error=True)
    await playing.play()
    assert playing.text() == "out of paint"


async def test_a_new_user_text_starts_over_even_together_with_answers() -> None:
    playing = session(client_tools=["paint"])
    await playing.send(script(call("paint"), {"say": "never"}))
    playing.answer("blue")
    assert await playing.send("hello") == "end_turn"
    assert playing.text() == "Hello! I am the rehearsal agent."


QUESTIONS = {
    "questions": [
        {"question": "Where?", "options": [{"label": "here"}, {"label": "there"}], "multiSelect": True},
        {"question": "When?", "header": "Time"},
    ]
}


@pytest.mark.parametrize(
    ("content", "raw", "expected_text"),
    [
        (
            "x",
            {
                "answers": [
                    {"question": "Where?", "labels": ["here", "there"], "custom": None},
                    {"question": "When?", "labels": [], "custom": "at noon"},
                ]
            },
            "here, there, at noon",
        ),
        ("Tool call denied: ask later", None, "Tool call denied: ask later"),
    ],
)
async def test_a_question_is_asked_as_written_and_the_answer_is_available_afterwards(
    content: str, raw: Json, expected_text: str
) -> None:
    playing = session()
    assert await playing.send(script({"ask": QUESTIONS}, call("lookup", q="x"), {"say": "{answer}"})) == "tool_use"
    assert playing.open[0].call.input == QUESTIONS
    playing.answer(content, raw=raw)
    await playing.play()
    assert playing.text() == expected_text


async def test_a_sub_agent_runs_its_script_below_its_call() -> None:
    inner = [{"think": "in"}, {"say": "unseen"}, call("add", a=1, b=2), {"say": "sum {result}"}, call("boom")]
    playing = session()
    await playing.send(
        script({"say": "out "}, {"fork": {"description": "dig", "script": inner}}, {"say": "({result})"})
    )
    assert playing.blocks() == [
        [Text("out "), called("Agent", description="dig", script=inner)],
        [Text("(sum 3)")],
    ]
    assert [type(each).__name__ for each in playing.messages if each.loop != ROOT] == [
        "AssistantMessage",
        "ToolMessage",
        "AssistantMessage",
        "ToolMessage",
    ]


async def test_sub_agents_can_have_sub_agents_and_wait_for_the_application() -> None:
    deep = {"fork": {"description": "b", "script": [call("paint"), {"say": "<{result}>"}]}}
    playing = session(client_tools=["paint"])
    steps = ({"fork": {"description": "a", "script": [{"say": "x"}, deep, {"say": "[{result}]"}]}}, {"say": "{result}"})
    assert await playing.send(script(*steps)) == "tool_use"
    playing.answer("blue")
    assert await playing.play() == "end_turn"
    assert playing.text() == "[<blue>]"


def test_an_invalid_call_has_no_sub_agent() -> None:
    agent = rehearsal(InMemoryStarts())
    assert agent.child(Call(call_id=CallId("c"), name="Agent", input={"prompt": "dig"})) is None
    child = agent.child(Call(call_id=CallId("c"), name="Agent", input={"description": "d", "script": []}))
    assert child is not None
    assert (child.spec, child.tool("add")) == (agent.spec, agent.tool("add"))


async def test_a_step_can_end_without_a_call() -> None:
    assert await blocks({"say": "a"}, {"step": True}, {"say": "b"}) == [[Text("a")], [Text("b")]]
    assert await blocks({"step": True}, {"step": True}) == [[], []]


# --- usage ------------------------------------------------------------------------------------------------------------


def usages(session: Session) -> list[Usage | None]:
    return [each.usage for each in session.reply_messages() if isinstance(each, AssistantMessage)]


async def test_a_step_reports_the_usage_of_the_script() -> None:
    playing = session()
    used = {"usage": {"input_tokens": 11, "output_tokens": 7}}
    await playing.send(script(used, call("add", a=1, b=2), {"say": "x"}, used))
    assert usages(playing) == [Usage(11, 7), Usage(11, 7)]
    await playing.send(script(used))
    assert usages(playing) == [Usage(11, 7)]
    await playing.send(script(used, {"step": True}, {"say": "four"}))
    assert usages(playing)[0] == Usage(11, 7)
    assert usages(playing)[1] == Usage(math.ceil(len(script(used, {"step": True}, {"say": "four"})) / 4), 1)


async def test_without_a_usage_a_quarter_of_the_characters_is_reported() -> None:
    playing = session()
    play = script({"think": "12345"}, {"say": "1234"}, call("add", a=1, b=2), {"say": "x"}, {"step": True})
    await playing.send(play)
    arguments, result = len('{"a":1,"b":2}'), len("3")
    read = [len(play), len(play) + 5 + 4 + arguments + result]
    assert usages(playing) == [
        Usage(math.ceil(read[0] / 4), math.ceil((9 + arguments) / 4)),
        Usage(math.ceil(read[1] / 4), 1),
    ]
    await playing.send("hello")
    assert usages(playing) == [Usage(2, 8)]


# --- what it knows ----------------------------------------------------------------------------------------------------


async def test_recall_says_earlier_user_texts_that_are_not_scripts() -> None:
    seeds: list[Message] = [
        SystemMessage(id=MessageId("s1"), content="Be brief."),
        UserMessage(id=MessageId("s2"), content=(Text("fi"), Text("rst"))),
        AssistantMessage(id=MessageId("s3"), content="one"),
        SystemMessage(id=MessageId("s4"), content="Be kind."),
        UserMessage(id=MessageId("s5"), content=(Image("https://a.example/b.png"),)),
    ]
    playing = session(history=seeds)
    await playing.send("recall")
    assert playing.text() == "first"
    await playing.send(script({"say": "x"}))
    with pytest.raises(AgentError):
        await playing.send('{"script": [')
    await playing.send(script({"recall": "user"}, {"say": " / "}, {"recall": "system"}, {"recall": "memory"}))
    assert playing.text() == "first | recall / Be brief. | Be kind.none"
    fork = {"fork": {"description": "d", "script": [{"recall": "user"}]}}
    await playing.send(script(fork, {"say": "{result}"}))
    assert playing.text() == "first | recall"


async def test_recall_of_nothing_says_none() -> None:
    assert await text({"recall": "user"}, {"recall": "system"}, {"recall": "memory"}) == "nonenonenone"


@pytest.mark.parametrize(("token", "expected_text"), [("", "unset"), ("abc", "set(3)"), ("🧑‍🚀", "set(3)")])
async def test_option_says_values_but_no_secrets(token: str, expected_text: str) -> None:
    options = {"greeting": "Hi {result}", "token": token}
    assert await text({"option": "token"}, options=options) == expected_text
    assert await text({"option": "greeting"}, options=options) == "Hi {result}"
    assert await text({"option": "colour"}, options=options) == "none"


async def test_props_says_the_metadata_of_the_run() -> None:
    names = ("time_zone", "client_time", "model", "user", "mode")
    steps = [{"say": ";"} if place % 2 else {"props": names[place // 2]} for place in range(9)]
    assert await text(*steps) == "UTC;none;none;none;none"
    metadata = RunMetadata(
        client_time={"device_timezone": "Asia/Tokyo", "n": 1}, model="m", user="u-7", protocol={"mode": "plan"}
    )
    said = 'Asia/Tokyo;{"device_timezone":"Asia/Tokyo","n":1};m;u-7;plan'
    assert await text(*steps, metadata=metadata) == said


async def test_starts_says_how_often_the_slow_tool_was_started() -> None:
    starts = InMemoryStarts()
    starts.append("tea")
    steps = ({"starts": "tea"}, call("slow", seconds=0, tag="tea"), {"starts": "tea"}, {"starts": "other"})
    assert await text(*steps, agent=rehearsal(starts)) == "120"


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["max_tokens", "refusal"])
async def test_a_script_can_stop_early(reason: str) -> None:
    playing = session()
    assert await playing.send(script({"say": "cut of"}, {"stop": reason}, call("boom"))) == reason
    assert playing.blocks() == [[Text("cut of")]]
    assert await playing.send(script(call("boom"), {"stop": reason})) == reason
    assert playing.blocks() == [[called("boom")]]


async def test_a_script_can_fail_inside_a_text() -> None:
    playing = session()
    with pytest.raises(RuntimeError, match=r"^internal looked up x$"):
        await playing.send(script(call("lookup", q="x"), {"say": "half"}, {"fail": "internal {result}"}))
    assert playing.deltas == [("text", "half")]
    with pytest.raises(AgentError) as raised:
        await playing.send(script({"fail": {"code": "teapot", "message": "Short and stout"}}))
    assert (raised.value.code, raised.value.message) == ("teapot", "Short and stout")


# --- what the history says --------------------------------------------------------------------------------------------


def history(*messages: Message) -> list[Message]:
    return list(messages)


async def test_only_the_history_determines_which_steps_have_run() -> None:
    play = script(calls("paint", "stamp"), {"step": True}, {"ask": QUESTIONS}, {"say": "{results}; {answer}; {result}"})
    first, second, question = (
        Call(call_id=CallId(name), name=name, input={}) for name in ("paint", "stamp", "AskUserQuestion")
    )
    raw = {"answers": [{"question": "q", "labels": ["yes"], "custom": None}]}
    seeds = history(
        UserMessage(id=MessageId("1"), content=play),
        AssistantMessage(id=MessageId("2"), content=(first, second)),
        ToolMessage(id=MessageId("3"), call_id=CallId("stamp"), name="stamp", content="B"),
        ToolMessage(id=MessageId("4"), call_id=CallId("paint"), name="paint", content="A"),
        AssistantMessage(id=MessageId("5"), content=(Text("half"),), status="cut"),
        AssistantMessage(id=MessageId("6"), content=()),
        AssistantMessage(id=MessageId("7"), content=(question,)),
        ToolMessage(id=MessageId("8"), call_id=CallId("AskUserQuestion"), name="AskUserQuestion", content="R", raw=raw),
    )
    playing = session(history=seeds)
    assert await playing.play() == "end_turn"
    assert playing.text() == "A, B; yes; R"
    assert len(playing.messages) == len(seeds) + 1


@pytest.mark.parametrize(
    ("final", "reason"), [((), "end_turn"), (({"stop": "max_tokens"},), "max_tokens"), ((call("boom"),), "end_turn")]
)
async def test_a_completed_script_does_not_run_again(final: tuple[Json, ...], reason: str) -> None:
    """The server may crash between the last delta and the end of the run."""
    playing = session()
    assert await playing.send(script({"say": "a"}, {"step": True}, {"say": "b"}, *final)) == reason
    before = list(playing.messages)
    assert await playing.play() == reason
    assert playing.messages == before


async def test_the_agent_stores_nothing_between_two_runs() -> None:
    agent = rehearsal(InMemoryStarts())
    one, other = (session(agent, client_tools=["paint"]) for _ in range(2))
    for playing in (one, other):
        assert await playing.send(script(call("paint"), {"say": "{result}"})) == "tool_use"
    for playing, result in ((other, "red"), (one, "blue")):
        playing.answer(result)
        await playing.play()
    assert (one.text(), other.text()) == ("blue", "red")
    assert await agent.play(MemoryRun(session(agent), ROOT, agent)) is None
