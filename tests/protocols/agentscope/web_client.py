"""The web client's merge rule as a fold, with all its peculiarities.

The web client splits the stream at empty lines and parses the data of every frame, so it fails on a frame that is not a
comment and has no data. It ignores `index`: a content updates the last slot of its message or opens a new one. A
response event replaces everything, including `output`.
"""

import json
from collections.abc import Iterable
from typing import Any

Json = Any


def frames_of(body: bytes) -> list[Json]:
    """The data of every frame. Fails where the web client would fail."""
    events = []
    for frame in body.decode().split("\n\n"):
        lines = [line for line in frame.split("\n") if line and not line.startswith(":")]
        if not lines:
            continue
        fields: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            assert colon, frame
            fields[name] = value.removeprefix(" ")
        events.append(json.loads(fields["data"]))
    return events


class WebView:
    """What the web client displays."""

    def __init__(self) -> None:
        self.response: Json = {"output": []}
        self.messages: list[Json] = []
        """The messages as they were before the terminal event."""

    def feed(self, event: Json) -> None:
        match event["object"]:
            case "response":
                self.messages = self.response["output"]
                self.response = {**self.response, **event, "output": event["output"] or []}
            case "message":
                if event["type"] != "heartbeat":
                    self._message(event)
            case "content":
                self._content(event)
            case strange:
                raise AssertionError(f"the web client treats {strange!r} as a failure")

    def _message(self, event: Json) -> None:
        for message in self.response["output"]:
            if message["id"] == event["id"]:
                message.update(event)
                return
        self.response["output"].append(dict(event))

    def _content(self, event: Json) -> None:
        [message] = [each for each in self.response["output"] if each["id"] == event["msg_id"]]
        slots = message["content"] = message["content"] or []
        last = slots[-1] if slots else None
        if not event["delta"]:
            if last is None:
                slots.append(dict(event))
            else:
                last.update(event)
        elif last is not None and last["delta"]:
            if event["type"] == "text" and last["type"] == "text":
                last["text"] += event["text"]
            elif event["type"] == "image":
                last["image_url"] = event["image_url"]
            elif event["type"] == "data":
                last["data"] = event["data"]
        else:
            slots.append(dict(event))


def fold_events(events: Iterable[Json]) -> WebView:
    """Fold all events of a stream."""
    view = WebView()
    for event in events:
        view.feed(event)
    return view
