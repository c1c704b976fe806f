"""A call about which a person decides twice: each question is shown with its own text, and so is each answer."""

from pathlib import Path

from dragoman.core.agent import Run
from dragoman.core.events import StopReason
from dragoman.core.question_text import repeat_question
from tests.engine.world import ScriptedAgent
from tests.protocols.blade.client import RestClient, socket_client
from tests.protocols.blade.driver import url_of
from tests.requirements import requirement
from tests.servers import running_socket_server


class CarefulAgent(ScriptedAgent):
    """Asks whether its call may run, and then whether it may run again."""

    asked = 0

    async def play(self, run: Run) -> StopReason | None:
        calls = list(run.recorded()) or [run.record("pay", {"amount": 5})]
        await run.end_step()
        self.asked += 1
        if self.asked < 3:
            calls[0].wait("permission", repeat=self.asked == 2)
        else:
            await calls[0].done("paid 5")
        return None


@requirement("faults:41:repeats", "blade:questions:of-tools")
async def test_the_second_question_about_a_call_has_its_own_text_and_both_answers_say_what_they_allowed(
    tmp_path: Path,
) -> None:
    async with running_socket_server(tmp_path, agents=[CarefulAgent({}, {})], rehearsal=False) as server:
        alice = RestClient(url_of(server), server.key("alice"))
        session = await alice.session()
        questions = ("Allow pay?", repeat_question("pay"))
        async with socket_client(alice.url, alice.key) as socket:
            await socket.send(session, "Pay.")
            for question in questions:
                paying, *asked = (await alice.messages(session))[1]["tool_calls"]
                assert len({each["id"] for each in asked}) == len(asked)
                assert question in asked[-1]["arguments"]
                assert paying["pending_question_ref"]["description"] == question
                assert paying["pending_question_ref"]["child_tool_call_id"] == asked[-1]["id"]
                assert [each["status"] for each in asked] == ["done"] * (len(asked) - 1) + ["awaiting_answer"]
                answer = {"tool_call_id": asked[-1]["id"], "selections": {"0": [0]}, "custom": {}}
                await socket.send(session, "", askuser_answer=answer)
        turns = await alice.messages(session)
        assert turns[1]["tool_calls"][0]["result"] == "paid 5"
        given = [block["content"] for turn in turns for block in turn["blocks"] if block["type"] == "ask_user_answer"]
        assert [each["answers"][0]["question"] for each in given] == list(questions)
        assert [each["permission"] for each in given] == [
            {"tool_name": "pay", "repeat": False},
            {"tool_name": "pay", "repeat": True},
        ]
