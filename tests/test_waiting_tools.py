"""A tool that asks the user while it runs: every protocol shows the question and its choices."""

from pathlib import Path
from uuid import uuid4

import pytest

from dragoman.client import Allow, AsyncClient, Choice, ClientCall, Permission, Question, Result
from dragoman.client.transports import ClientProtocol
from dragoman.core.agent import Run
from dragoman.core.content import JsonObject, ToolMessage, text_of
from dragoman.core.events import StopReason
from dragoman.core.tools import ASK_USER_QUESTION
from dragoman.server.loading import load
from tests.client.driver import FEATURES
from tests.engine.world import ScriptedAgent
from tests.protocols.a2a.client import said
from tests.protocols.aap.stream import Mode
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.servers import running_socket_server
from tests.test_one_session import ProtocolClients

APP = '''
from dragoman import Deferred, Run, ToolContext, agent, tool


@tool
def seat(train: str, context: ToolContext) -> str:
    """Reserve a seat."""
    if context.answer is None:
        question = {"question": "Where?", "options": [{"label": "window"}, {"label": "aisle"}]}
        raise Deferred("question", {"questions": [question]})
    return f"{context.answer} seat on {train}"


SEATS = {}


@tool
def trip(train: str, context: ToolContext) -> str:
    """Reserve a seat and a meal."""
    if context.call_id not in SEATS and context.answer is None:
        raise Deferred("question", {"questions": [{"question": "Where?", "options": [{"label": "window"}]}]})
    if SEATS.setdefault(context.call_id, context.answer) == context.answer:
        raise Deferred("question", {"questions": [{"question": "Which meal?", "options": [{"label": "soup"}]}]})
    if not context.granted:
        raise Deferred("permission")
    return f"a seat and a meal on {train}"


@agent("traveller", tools=[trip], history=True)
async def traveller(run: Run):
    yield await run.call(trip, train="R7")


@agent("clerk", tools=[seat], history=True)
async def clerk(run: Run):
    yield await run.call(seat, train="R7")
'''

QUESTION: JsonObject = {"questions": [{"question": "Where?", "options": [{"label": "window"}, {"label": "aisle"}]}]}


class AskingAgent(ScriptedAgent):
    """Asks with a call that it runs itself."""

    async def play(self, run: Run) -> StopReason | None:
        asked = run.recorded()
        if not asked:
            call = run.record(ASK_USER_QUESTION, QUESTION, origin="call_1")
            await run.end_step()
            call.wait("question", note=QUESTION)
        elif isinstance(asked[0].answer, ToolMessage):
            await asked[0].done(text_of(asked[0].answer.content))
            run.emit("So be it.")
            await run.end_step()
        return None


async def test_every_protocol_shows_the_question_that_a_tool_asks_and_continues_with_the_answer(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    _, clerk = load(str(tmp_path / "app.py"))
    async with running_socket_server(tmp_path / "data", agents=[clerk], rehearsal=False) as server:
        clients = ProtocolClients(server, "alice", agent="clerk")
        clients.ag_ui.agent = "clerk"
        session = await clients.aap.create("clerk", server_tools=[{"name": "seat", "trust": True}])
        await clients.tab.connect()
        await clients.tab.leave()
        shown = str(await clients.ag_ui.run(an_input("a seat", thread=session.id)))
        assert "input_required" in shown
        assert "Where?" in shown
        (pending,) = (await session.info())["_meta"]["pending"]
        assert (pending["name"], pending["kind"]) == ("AskUserQuestion", "question")
        assert [each["label"] for each in pending["input"]["questions"][0]["options"]] == ["window", "aisle"]
        blade = str(await clients.blade.messages(f"sess_{session.id}"))
        assert "Where?" in blade
        turn = await session.run([{"role": "tool", "toolCallId": pending["toolCallId"], "content": "aisle"}])
        assert turn.text == "aisle seat on R7"
        for answers in (await clients.histories_by_protocol(session.id)).values():
            assert any("aisle seat on R7" in each for each in answers)
        assert "aisle seat on R7" in str(await clients.blade.messages(f"sess_{session.id}"))


async def test_a_text_answers_the_question_of_a_tool_where_protocols_have_no_form_for_it(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    _, clerk = load(str(tmp_path / "app.py"))
    async with running_socket_server(tmp_path / "data", agents=[clerk], rehearsal=False) as server:
        clients = ProtocolClients(server, "alice", agent="clerk")
        asked = await clients.openai.respond("a seat", model="clerk")
        assert [item["type"] for item in asked["output"]] == ["mcp_call", "message"]
        assert asked["output"][1]["content"][0]["text"] == "Where?\n- window\n- aisle"
        answered = await clients.openai.respond("Aisle", model="clerk", previous_response_id=asked["id"])
        assert answered["output"][-1]["content"][0]["text"] == "aisle seat on R7"
        stored = await clients.openai.get(f"/responses/{asked['id']}")
        assert stored["output"] == asked["output"]

        messages = [{"role": "user", "content": "a seat"}]
        named = {"model": "clerk", "metadata": {"dragoman_session": "a chat"}}
        completion = await clients.openai.post("/chat/completions", {**named, "messages": messages})
        question = completion["choices"][0]["message"]
        assert question["content"] == "Where?\n- window\n- aisle"
        messages += [question, {"role": "user", "content": "window"}]
        completion = await clients.openai.post("/chat/completions", {**named, "messages": messages})
        assert completion["choices"][0]["message"]["content"] == "window seat on R7"

        stream = await clients.mcp.open("a seat", more={"name": "clerk", "arguments": {"message": "a seat"}})
        result = (await stream.result())["structuredContent"]
        assert (result["status"], result["pending"][0]["kind"]) == ("input_required", "question")
        (shown,) = result["pending"][0]["input"]["questions"]
        assert [each["label"] for each in shown["options"]] == ["window", "aisle"]
        given = {"message": "Window", "session_id": result["session_id"]}
        stream = await clients.mcp.open("Window", more={"name": "clerk", "arguments": given})
        assert (await stream.result())["structuredContent"]["text"] == "window seat on R7"

        asking = await clients.a2a.send("a seat")
        assert asking["status"]["message"]["parts"][0]["text"] == "Where?\n- window\n- aisle"
        assert said(await clients.a2a.send("WINDOW", taskId=asking["id"])) == "window seat on R7"


async def test_the_client_library_reads_the_question_of_a_tool_over_every_protocol(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    _, clerk = load(str(tmp_path / "app.py"))
    async with running_socket_server(tmp_path / "data", agents=[clerk], rehearsal=False) as server:
        for protocol in FEATURES:
            async with AsyncClient(server.connection.url, key=server.key("alice"), protocol=protocol) as client:
                session = await client.create("clerk", trusted_tools=["seat"] if protocol == "aap" else ())
                await session.ask("a seat")
                (question,) = session.pending
                assert isinstance(question, Question), (protocol, question)
                assert question.questions[0].question.startswith("Where?"), protocol
                answered = await session.answer(Choice.of("aisle", call_id=question.call_id)).reply()
                assert answered.text == "aisle seat on R7", protocol


async def test_over_aap_the_end_of_a_turn_has_the_question_of_a_tool(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    _, clerk = load(str(tmp_path / "app.py"))
    async with running_socket_server(tmp_path / "data", agents=[clerk], rehearsal=False) as server:
        clients = ProtocolClients(server, "alice", agent="clerk")
        pending = []
        for mode in ("delta", "message", "none"):
            session = await clients.aap.create("clerk", server_tools=[{"name": "seat", "trust": True}])
            turn = await session.run("a seat", mode=mode)
            pending.append([{**each, "toolCallId": ""} for each in turn.meta["pending"]])
        question = {"question": "Where?", "options": [{"label": "window"}, {"label": "aisle"}]}
        shown = {"toolCallId": "", "name": "AskUserQuestion", "input": {"questions": [question]}, "kind": "question"}
        assert pending == [[shown]] * 3


async def test_the_client_library_reads_a_question_of_another_framework_once_over_every_protocol(
    tmp_path: Path,
) -> None:
    """Their questions are calls that the agent runs itself, and that wait with what they ask."""
    async with running_socket_server(tmp_path, agents=[AskingAgent({}, {})], rehearsal=False) as server:
        for protocol in FEATURES:
            async with AsyncClient(server.connection.url, key=server.key("alice"), protocol=protocol) as client:
                session = await client.create("player")
                await session.ask("a seat")
                assert [type(each) for each in session.pending] == [Question], protocol
                answered = await session.answer(Choice.of("aisle")).reply()
                assert answered.text == "So be it.", protocol


@pytest.mark.parametrize("protocol", FEATURES)
async def test_what_a_tool_asks_next_is_shown_in_the_run_that_answers_its_first_question(
    tmp_path: Path, protocol: ClientProtocol
) -> None:
    """The call was made by an earlier run than the one that ends with what it asks next."""
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    traveller, _ = load(str(tmp_path / "app.py"))
    async with (
        running_socket_server(tmp_path / "data", agents=[traveller], rehearsal=False) as server,
        AsyncClient(server.connection.url, key=server.key("alice"), protocol=protocol) as client,
    ):
        session = await client.create("traveller", trusted_tools=["trip"] if protocol == "aap" else ())
        replies = [await session.ask("a trip")]
        for asked, answer in (("Where?", "window"), ("Which meal?", "soup")):
            (question,) = session.pending
            assert isinstance(question, Question)
            assert question.questions[0].question.startswith(asked)
            replies.append(await session.answer(Choice.of(answer, call_id=question.call_id)).reply())
        if protocol != "aap":  # there it has the permission already
            (permission,) = session.pending
            assert isinstance(permission, Permission)
            assert (permission.name, permission.arguments) == ("trip", {"train": "R7"})
            replies.append(await session.answer(Allow(call_id=permission.call_id)).reply())
        assert replies[-1].text == "a seat and a meal on R7"


@pytest.mark.parametrize("mode", ["delta", "message", "none"])
async def test_over_aap_the_turn_that_ends_with_it_shows_the_call_that_asks_again(tmp_path: Path, mode: Mode) -> None:
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    traveller, _ = load(str(tmp_path / "app.py"))
    async with running_socket_server(tmp_path / "data", agents=[traveller], rehearsal=False) as server:
        aap = ProtocolClients(server, "alice", agent="traveller").aap
        session = await aap.create("traveller", server_tools=[{"name": "trip", "trust": True}])
        asked = await session.run("a trip", mode=mode)
        answer = {"role": "tool", "toolCallId": asked.calls[0].id, "content": "window"}
        again = await session.run([answer], mode=mode)
        assert again.calls == asked.calls == [(asked.calls[0].id, "trip", {"train": "R7"})]
        (pending,) = again.meta["pending"]
        assert (pending["name"], pending["input"]["questions"][0]["question"]) == ("AskUserQuestion", "Which meal?")
        answered = await session.run([{**answer, "content": "soup"}])
        assert (answered.calls, answered.text) == ([], "a seat and a meal on R7")


async def test_over_ag_ui_an_interrupt_names_the_call_that_asks_again(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    traveller, _ = load(str(tmp_path / "app.py"))
    async with running_socket_server(tmp_path / "data", agents=[traveller], rehearsal=False) as server:
        ag_ui, thread = Endpoint(server.connection, server.key("alice"), agent="traveller"), str(uuid4())
        ended = await ag_ui.run(an_input("a trip", thread=thread))
        for label in ("window", "soup"):
            (asked,) = ended.events[-1]["outcome"]["interrupts"]
            payload = {"selections": {"0": [label]}}
            resume = [{"interruptId": asked["id"], "status": "resolved", "payload": payload}]
            ended = await ag_ui.run(an_input(thread=thread, messages=[], resume=resume))
        (asked,) = ended.events[-1]["outcome"]["interrupts"]
        assert asked["message"] == "Allow the call of trip?"


TWO_QUESTIONS = '''
from dragoman import Deferred, Run, ToolContext, agent, tool


@tool
def seat(context: ToolContext) -> str:
    """Reserve a seat."""
    if context.answer is None:
        where = {"question": "Where?", "options": [{"label": "window"}, {"label": "aisle"}]}
        which = {"question": "Which class?", "options": [{"label": "first"}, {"label": "second"}]}
        raise Deferred("question", {"questions": [where, which]})
    return " ".join(labels[0] for labels in context.answers)


@tool
def photo(context: ToolContext) -> str:
    """Get a picture from the application."""
    if context.answer is None:
        raise Deferred("client")
    return f"a picture of {context.answer}"


@agent("clerk", tools=[seat, photo], history=True)
async def clerk(run: Run):
    yield await run.call(seat if run.text == "a seat" else photo)
'''


async def test_the_questions_of_a_tool_are_an_event_with_their_choices_and_each_gets_its_own_answer(
    tmp_path: Path,
) -> None:
    (tmp_path / "app.py").write_text(TWO_QUESTIONS, encoding="utf-8")
    (clerk,) = load(str(tmp_path / "app.py"))
    async with running_socket_server(tmp_path / "data", agents=[clerk], rehearsal=False) as server:
        for protocol in [each for each in FEATURES if each != "a2a"]:  # which has texts only
            async with AsyncClient(server.connection.url, key=server.key("alice"), protocol=protocol) as client:
                session = await client.create("clerk", trusted_tools=["seat"] if protocol == "aap" else ())
                asked = await session.ask("a seat")
                (question,) = (each for each in asked.events if isinstance(each, Question))
                shown = [[option.label for option in each.options] for each in question.questions]
                assert shown == [["window", "aisle"], ["first", "second"]], protocol
                choice = Choice(call_id=question.call_id, selections={0: ("aisle",), 1: ("second",)})
                answered = await session.answer(choice).reply()
                assert answered.text == "aisle second", protocol


async def test_a_tool_of_the_server_that_waits_for_the_application_is_pending(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(TWO_QUESTIONS, encoding="utf-8")
    (clerk,) = load(str(tmp_path / "app.py"))
    async with running_socket_server(tmp_path / "data", agents=[clerk], rehearsal=False) as server:
        for protocol in [each for each in FEATURES if "client tools" in FEATURES[each]]:
            async with AsyncClient(server.connection.url, key=server.key("alice"), protocol=protocol) as client:
                session = await client.create("clerk", trusted_tools=["photo"] if protocol == "aap" else ())
                asked = await session.ask("a picture")
                (pending,) = session.pending
                assert (asked.end.reason, type(pending)) == ("tool_use", ClientCall), protocol
                answered = await session.answer(Result(call_id=pending.call_id, text="Rome")).reply()
                assert answered.text == "a picture of Rome", protocol
