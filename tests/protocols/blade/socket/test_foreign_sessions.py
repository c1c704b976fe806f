"""Another user's session, one that was deleted and one that never was are the same to every event of the socket."""

from typing import Any

import pytest

from tests.protocols.blade.client import RestClient, is_list_update, socket_client
from tests.requirements import requirement

UNKNOWN = "sess_01a21f75-c981-72ce-891d-d4f849670dd4"
EVENTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("session:subscribe", {}),
    ("session:subscribe", {"event_format": "raw", "resume": True}),
    ("session:subscribe", {"after_sequence": -1}),
    ("session:unsubscribe", {}),
    ("chat:send", {"message": "hello"}),
    ("chat:send", {"message": "hello", "whatif": {"from_step": 0}}),
    ("chat:send", {"message": "hello", "headless": True, "output_schema": {"type": "object"}}),
    ("chat:send", {"askuser_answer": {"tool_call_id": "tc_x", "selections": {"0": ["a"]}}, "message": ""}),
    ("chat:stop", {}),
    ("chat:stop", {"chat_run_id": "chat_x"}),
    ("chat:compact", {}),
)


@requirement("blade:abuse:events")
@pytest.mark.parametrize(("name", "payload"), EVENTS)
async def test_no_event_tells_whether_a_session_of_another_user_exists(
    alice: RestClient, bob: RestClient, name: str, payload: dict[str, Any]
) -> None:
    foreign, deleted = await alice.session(), await bob.session()
    assert (await bob.request("DELETE", f"sessions/{deleted}")).status == 200
    answers = []
    async with socket_client(alice.url, alice.key) as owner, socket_client(bob.url, bob.key) as socket:
        await owner.call("session:subscribe", {"session_id": foreign})
        for session in (foreign, deleted, UNKNOWN):
            seen = len(socket.events)
            reply = await socket.call(name, {"session_id": session, **payload})
            heard = [each for each in socket.events[seen:] if not is_list_update(*each)]
            answers.append(repr((reply, heard)).replace(session, "SESSION"))
        assert (await owner.send(foreign, "mine"))[-1][0] == "chat:end"
        late = [each for each in socket.events if each[0] in ("turn:patch", "turn_start", "chat:end")]
    assert late == [], "nothing of the owner's chat"
    assert answers[0] == answers[1] == answers[2]
    assert len(await alice.messages(foreign)) == 2, "what the owner said, and its answer"
