"""Compares what clients sent and received with every server's answers and with the log."""

from collections.abc import Sequence

from dragoman.core.content import AssistantMessage, UserMessage, text_of
from dragoman.core.history import messages_of
from dragoman.core.ids import SessionId
from dragoman.stores.postgres.log import PostgresLog
from tests.cluster.agents import act
from tests.cluster.clients import Client, StreamReader
from tests.cluster.nodes import Node
from tests.crash.client import send_request
from tests.engine.log_checker import check_session

ENDS = ("end_turn", "interrupted", "error")
"""How a turn may end: as its agent wants, or given up after too many deaths."""


async def check(
    clients: Sequence[Client], nodes: Sequence[Node], log: PostgresLog, stream_readers: Sequence[StreamReader] = ()
) -> dict[str, int]:
    """Raise AssertionError where a promise was broken; how much was checked."""
    turns = streams = 0
    for client in clients:
        if not client.session_id:
            continue
        await check_session(log, SessionId(client.session_id), {"act": act}, AnyCall())
        events = list(await log.events(SessionId(client.session_id), 0, 1_000_000))
        messages = messages_of(events)
        heard = [text_of(each.content) for each in messages if isinstance(each, UserMessage)]
        called = [each.text for each in client.history if each.is_acknowledged]
        assert heard == called, f"{client.name}: acknowledged {called}, and stored is {heard}"
        said = dict.fromkeys(heard, "")
        now = ""
        for message in messages:
            if isinstance(message, UserMessage):
                now = text_of(message.content)
            elif isinstance(message, AssistantMessage):
                said[now] += text_of(message.content)
        for each in client.history:
            turns += 1
            assert each.stop in ENDS or not each.is_acknowledged, each
            for answer in each.answers:
                streams += 1
                assert said[each.text].startswith(answer), (each.text, answer, said[each.text])
            assert not each.stop or said[each.text] == each.answers[-1], "a stream to its end shows all"
        for answer in (each for onlooker in stream_readers if onlooker.client is client for each in onlooker.answers):
            streams += 1
            text = answer.partition(" ")[0]
            assert not answer or said[text].startswith(answer), (text, answer, said[text])
        histories = {
            (await send_request(node.port, "GET", f"/sessions/{client.session_id}/history?type=full")).body
            for node in nodes
            if node.port
        }
        assert len(histories) == 1, f"{client.name}: servers tell different histories"
    return {"clients": len(clients), "turns": turns, "streams": streams}


class AnyCall(set[str]):
    """Every call: the campaign's tool may be begun again."""

    def __contains__(self, call: object) -> bool:
        return True
