"""Asks the last server about everything that its clients know."""

from collections.abc import Mapping
from typing import Any

from tests.crash import client_checker
from tests.crash.actor import Actor, expect, path_of, turns_of, user
from tests.crash.client import send_request
from tests.crash.client_records import Message, SessionRecord
from tests.crash.turn_plans import counting

Json = Any
REPLAYS = 3
"""How many turns of a session are replayed."""


class FinalCheck:
    """Finds broken promises."""

    def __init__(self, port: int, actors: list[Actor]) -> None:
        self._port = port
        self._sessions = [session for actor in actors for session in actor.sessions]

    async def run(self) -> list[str]:
        """Check every session, and run one more turn in each."""
        faults = await self._listing()
        histories = []
        for session in self._sessions:
            if session.is_deleted:
                if (answer := await send_request(self._port, "GET", path_of(session))).status != 404:
                    faults.append(f"the deleted session {session.session_id} is there: {answer}")
                continue
            info = await self._get(path_of(session))
            history: list[Message] = (await self._get(f"{path_of(session)}/history?type=full"))["history"]["full"]
            histories.append(history)
            faults += client_checker.check_session(session, info, history)
            faults += client_checker.check_view(session, session.client.history, history)
            faults += await self._replays(session)
            faults += await self._check_usable(session)
        tags = [tag for session in self._sessions for turn in session.turns for tag in turn.plan.tags]
        return [*faults, *client_checker.check_starts(await self._starts(tags), histories)]

    async def _get(self, path: str) -> Json:
        return expect(await send_request(self._port, "GET", path), 200).json

    async def _listing(self) -> list[str]:
        """Check that every acknowledged session is listed once, and no other session has its tag."""
        listed: list[Json] = []
        path = "/sessions?limit=200"
        while True:
            page = await self._get(path)
            listed += page["sessions"]
            if "next" not in page:
                break
            path = f"/sessions?limit=200&after={page['next']}"
        listed_ids: dict[str, list[str]] = {}
        for each in listed:
            listed_ids.setdefault(each["agent"]["options"]["greeting"], []).append(each["sessionId"])
        expected = {session.tag: [] if session.is_deleted else [session.session_id] for session in self._sessions}
        faults = [
            f"session {tag} was created as {ids}, and is listed as {listed_ids.get(tag, [])}"
            for tag, ids in expected.items()
            if listed_ids.get(tag, []) != ids
        ]
        faults += [f"session {each['sessionId']} is still running" for each in listed if is_running(each)]
        return faults

    async def _replays(self, session: SessionRecord) -> list[str]:
        faults: list[str] = []
        for run in [run for run in session.runs if run.frames][-REPLAYS:]:
            path = f"{path_of(session)}/events?turn={run.run_id}&stream={run.stream_mode}"
            answer = expect(await send_request(self._port, "GET", path, headers={"last-event-id": "0"}), 200)
            faults += client_checker.check_replay(run, answer.body)
        return faults

    async def _check_usable(self, session: SessionRecord) -> list[str]:
        """Check that the session accepts another turn."""
        answer = await send_request(self._port, "POST", turns_of(session), {"messages": [user("hello")]})
        if answer.status == 200 and answer.json["stopReason"] == "end_turn":
            return []
        return [f"the next turn of session {session.session_id} got {answer}"]

    async def _starts(self, tags: list[str]) -> Mapping[str, int]:
        """Count the starts of the rehearsal agent's slow tool by tag, over all lives of the server."""
        created = await send_request(self._port, "POST", "/sessions", {"agent": {"name": "rehearsal"}})
        path = f"/sessions/{expect(created, 201).json['sessionId']}/turns"
        answer = expect(await send_request(self._port, "POST", path, {"messages": [user(counting(tags))]}), 200).json
        text = "".join(block["text"] for message in answer["messages"] for block in message["content"])
        return dict(zip(tags, map(int, text.split()), strict=True))


def is_running(info: Json) -> bool:
    return bool(info["_meta"]["status"] == "running")
