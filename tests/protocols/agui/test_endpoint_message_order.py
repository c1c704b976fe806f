"""A snapshot has the messages in the order in which a client has them that received the streams.

The client is modeled on `@ag-ui/client` 1.0, which places a result behind the message that made its call.
"""

from collections.abc import Iterable

from dragoman.core.events import LoggedEvent, RunStarted
from dragoman.core.stream import Record, expand
from dragoman.protocols.agui import events as agui_events
from dragoman.protocols.agui.messages import Transcript
from dragoman.protocols.agui.translate import Translator
from tests.core.log_generator import generated_log
from tests.extent import extent
from tests.requirements import requirement


def streamed(records: Iterable[Record]) -> Iterable[agui_events.Event]:
    translator: Translator | None = None
    for record in records:
        if isinstance(record, LoggedEvent) and isinstance(record.event, RunStarted):
            translator = Translator(record.event.run_id, thread_id="t", shows_input=True)
        if translator is not None:
            yield from translator.feed(record)


def order_at_client(events: Iterable[agui_events.Event]) -> list[str]:
    """The ids of a client's messages."""
    order: list[str] = []
    caller: dict[str, str] = {}
    results: set[str] = set()
    for event in events:
        match event:
            case agui_events.TextMessageStart(message_id=own) | agui_events.ReasoningMessageStart(message_id=own):
                order.append(own)
            case agui_events.ActivitySnapshot(message_id=own) if own not in order:
                order.append(own)
            case agui_events.ToolCallStart(tool_call_id=call_id, parent_message_id=parent):
                caller[call_id] = parent
                if parent not in order:
                    order.append(parent)
            case agui_events.ToolCallResult(message_id=own, tool_call_id=call_id):
                place = order.index(caller[call_id]) + 1 if call_id in caller else len(order)
                while place < len(order) and order[place] in results:
                    place += 1
                order.insert(place, own)
                results.add(own)
    return order


@requirement("ag-ui-b:hydrate:as-live")
def test_a_snapshot_has_the_order_of_the_streams_although_sub_agents_answer_meanwhile() -> None:
    for seed in range(extent(full=600, sample=12)):
        log = generated_log(seed, 150).log
        transcript = Transcript()
        for logged in log:
            transcript.feed(logged)
        snapshot, client = [each.id for each in transcript.messages()], order_at_client(streamed(expand(log)))
        assert [own for own in snapshot if own in client] == [own for own in client if own in snapshot], seed
