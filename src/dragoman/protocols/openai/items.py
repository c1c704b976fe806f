"""The items of a session: what its requests sent and what its agent answered, from the events of its log. Pure."""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from dragoman.core import content as core
from dragoman.core.answers import compact_json
from dragoman.core.events import (
    AnswerGiven,
    CallOpened,
    CallParked,
    CallSettled,
    LoggedEvent,
    MessageAdded,
    RunStarted,
    RunStopped,
    SessionCreated,
    SettingsChanged,
)
from dragoman.core.history import EarlierCall
from dragoman.core.ids import ROOT, CallId, RunId
from dragoman.core.session import SessionState
from dragoman.protocols.openai import ids, wire
from dragoman.protocols.openai.translate import ALL, ResponseEvents


class _Response:
    """What a request sent, and what became of it. Before its run starts, the run is not known."""

    def __init__(self) -> None:
        self.sent: list[core.Message | LoggedEvent] = []
        self.events: ResponseEvents | None = None
        self.run_id: RunId | None = None


class SessionItems:
    """Collects the items of a session event by event, oldest first."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._responses = [_Response()]
        self._is_unlisted = False
        self._calls: dict[CallId, EarlierCall] = {}
        self.with_media: dict[str, core.UserMessage | core.ToolMessage] = {}
        """The messages that may have images and files, by the ids of their items, once these were made."""

    def feed(self, logged: LoggedEvent) -> None:
        """Take the next event."""
        current = self._responses[-1]
        match logged.event:
            case MessageAdded(message=message) if message.loop == ROOT:
                current.sent.append(message)
            case AnswerGiven() | CallSettled(by_client=True):
                current.sent.append(logged)
            case CallSettled(result=result) if current.events is None and result.loop == ROOT:
                current.sent.append(logged)  # a new message closed the call
            case CallOpened(call=call) as opened:
                self._calls[call.call_id] = EarlierCall(logged.run_id, opened)
            case CallParked(call_id=call_id) as parked if call_id in self._calls:
                self._calls[call_id] = self._calls[call_id].parked(parked)
            case SessionCreated(settings=settings):
                self._is_unlisted = settings.unlisted
            case SettingsChanged(change=change) if change.unlisted is not None:
                self._is_unlisted = change.unlisted
            case RunStarted(run_id=run_id):
                if len(self._responses) == 1 and not self._is_unlisted:
                    current = self._separate_past(current)
                current.run_id = run_id
                current.events = ResponseEvents(
                    run_id, self._state.session_id, self._state.agent, earlier=self._calls, skip=ALL
                )
        if current.events is not None:
            current.events.feed(logged)
        if isinstance(logged.event, RunStopped) and logged.event.run_id == current.run_id:
            self._responses.append(_Response())

    def inputs_of(self, run_id: RunId) -> Sequence[wire.Item]:
        """What the request of a run sent."""
        return [item for each in self._responses if each.run_id == run_id for item in self._inputs(each)]

    def all(self) -> Sequence[wire.Item]:
        """All items."""
        found: list[wire.Item] = []
        for each in self._responses:
            found += self._inputs(each)
            found += () if each.events is None else each.events.items
        return found

    def _separate_past(self, first: _Response) -> _Response:
        """Separate what a session contained before its first request from what that request sent.

        Only a request that creates its session sends the messages before its run, and the session stays unlisted then.
        The items of the past keep the IDs that they had before the run.
        """
        request = _Response()
        request.sent = [each for each in first.sent if isinstance(each, LoggedEvent)]
        first.sent = [each for each in first.sent if not isinstance(each, LoggedEvent)]
        self._responses.append(request)
        return request

    def _inputs(self, response: _Response) -> Iterator[wire.Item]:
        owner = ids.bare(response.run_id or self._state.session_id)
        index = 0
        for each in response.sent:
            for item in self._items(each, owner, index):
                yield item
                index += 1

    def _items(self, sent: core.Message | LoggedEvent, owner: str, index: int) -> Iterator[wire.Item]:
        match sent:
            case LoggedEvent(event=AnswerGiven(call_id=call_id) as answer):
                earlier = self._calls.get(call_id)
                if earlier is not None and earlier.opened.kind == "permission":
                    yield wire.McpApprovalResponse(
                        id=f"mcpa_{owner}_i{index}",
                        approval_request_id=ids.call_id(earlier.run_id, call_id, "mcpr"),
                        approve=answer.granted,
                        reason=answer.reason,
                    )
            case LoggedEvent(event=CallSettled(result=result)):
                earlier = self._calls.get(result.call_id)
                if earlier is None or earlier.opened.kind != "permission":
                    yield self._output(result, owner, index)
                else:
                    yield self._closed_call(result, earlier, f"mcp_{owner}_i{index}")
            case core.ToolMessage():
                yield self._output(sent, owner, index)
            case core.UserMessage():
                item = user_message(f"msg_{owner}_i{index}", sent)
                self.with_media[item.id] = sent
                yield item
            case core.SystemMessage(content=content, origin="seed"):
                part = wire.InputText(text=content)
                yield _message(f"msg_{owner}_i{index}", "system", part)
            case core.AssistantMessage(content=content):
                text = core.text_of(content)
                if text:
                    said = wire.OutputText(text=text)
                    yield _message(f"msg_{owner}_i{index}", "assistant", said)
                for place, call in enumerate(sent.calls(), index + bool(text)):
                    yield wire.FunctionCall(
                        id=f"fc_{owner}_i{place}",
                        call_id=call.call_id,
                        name=call.name,
                        arguments=compact_json(call.input),
                        status="completed",
                    )

    def _closed_call(self, result: core.ToolMessage, earlier: EarlierCall, item_id: str) -> wire.McpCall:
        """A call that waited for approval until a new message closed it."""
        opened = earlier.opened
        return wire.McpCall(
            id=item_id,
            server_label=opened.server or self._state.agent,
            name=opened.call.name,
            arguments=compact_json(opened.call.input),
            status="failed",
            error=wire.McpError(content=core.text_of(result.content)),
            approval_request_id=ids.call_id(earlier.run_id, result.call_id, "mcpr"),
        )

    def _output(self, result: core.ToolMessage, owner: str, index: int) -> wire.FunctionCallOutput:
        earlier = self._calls.get(result.call_id)
        call_id = ids.call_id(None if earlier is None else earlier.run_id, result.call_id)
        item = wire.FunctionCallOutput(id=f"fco_{owner}_i{index}", call_id=call_id, output=_output(result.content))
        self.with_media[item.id] = result
        return item


def user_message(item_id: str, message: core.UserMessage) -> wire.Message:
    """A user's message as an item."""
    return _message(item_id, "user", *_parts(message.content))


def with_content(item: wire.Item, message: core.UserMessage | core.ToolMessage) -> wire.Item:
    """An item with the content of the message that it shows."""
    if isinstance(message, core.UserMessage):
        return user_message(item.id, message)
    return msgspec.structs.replace(item, output=_output(message.content))


def _output(content: str | tuple[core.InputBlock, ...]) -> str | tuple[wire.Part, ...]:
    return content if isinstance(content, str) else tuple(_parts(content))


def _message(item_id: str, role: Literal["user", "assistant", "system"], *parts: wire.Part) -> wire.Message:
    return wire.Message(id=item_id, status="completed", role=role, content=parts)


def _parts(content: str | tuple[core.InputBlock, ...]) -> Iterator[wire.Part]:
    for block in (core.Text(content),) if isinstance(content, str) else content:
        match block:
            case core.Text(text=text):
                yield wire.InputText(text=text)
            case core.Image(url=url):
                yield wire.InputImage(image_url=url)
            case core.File(url=url, name=name):
                is_data = url.startswith("data:")
                yield wire.InputFile(
                    file_url=None if is_data else url, file_data=url if is_data else None, filename=name
                )
            case core.Data(data=data):
                yield wire.InputText(text=compact_json(data))
