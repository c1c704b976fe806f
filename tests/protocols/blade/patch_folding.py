"""How clients fold patches (specification, section 7), and what they may rely on: the guarantees G1 to G5."""

import json
from typing import Any

Json = Any
Event = tuple[str, dict[str, Json]]
SEED_FIELDS = (
    "id",
    "sequence",
    "turn_id",
    "loop_id",
    "kind",
    "role",
    "status",
    "blocks",
    "tool_calls",
    "model",
    "usage",
    "duration_ms",
    "started_at",
    "context_window",
    "memory_refs",
    "parent_fork_tool_call_id",
    "compaction_id",
    "summary_preview",
    "summary_full",
    "archived_count",
    "tokens_before",
    "tokens_after",
    "saved_ratio",
    "trigger",
    "failure_reason",
)


class FoldedTurns:
    """The turns that a client folds from events. Checks G1 at every end, and that no patch is missing."""

    def __init__(self) -> None:
        self.turns: dict[str, dict[str, Json]] = {}
        self._last: dict[str, int] = {}

    def feed(self, event: Event) -> None:
        name, payload = event
        if name == "turn:start":
            self.turns[payload["turn_id"]] = copied(payload)
            self._last[payload["turn_id"]] = payload["patch_sequence"]
        elif name == "turn:patch":
            key = payload["turn_id"]
            assert payload["sequence"] == self._last[key] + 1, "a patch is missing, or came twice"
            self._last[key] = payload["sequence"]
            apply(self.turns[key], payload)
        elif name == "turn:end":
            key = payload["turn_id"]
            turn = self.turns.get(key)
            if turn is not None:
                assert payload["patch_sequence"] == self._last[key]
                for field in ("blocks", "tool_calls"):
                    assert turn[field] == payload[field], (key, field)
            self.turns[key] = copied(payload)
            self._last[key] = payload["patch_sequence"]


def copied(turn: dict[str, Json]) -> dict[str, Json]:
    return {
        **turn,
        "blocks": [dict(block) for block in turn["blocks"]],
        "tool_calls": [dict(call) for call in turn["tool_calls"]],
    }


def apply(turn: dict[str, Json], patch: dict[str, Json]) -> None:
    """Change a turn as a patch says."""
    data = patch["data"]
    match patch["patch_type"]:
        case "add_content":
            add_content(turn["blocks"], data)
        case "add_tool_call":
            call = {**data, "result": None, "duration_ms": None, "pending_question_ref": None}
            turn["tool_calls"].append(call)
            turn["blocks"].append(block("tool_use", arguments(data["arguments"]), call))
        case "tool_result":
            call = find_call(turn, data["tool_call_id"])
            call.update({name: data[name] for name in ("result", "status", "duration_ms")})
            call["pending_question_ref"] = None
            turn["blocks"].append(block("tool_result", data["result"], call))
        case "set_status":
            turn["status"] = data["status"]
        case "set_tool_status":
            call = find_call(turn, data["tool_call_id"])
            call["status"] = data["status"]
            call["pending_question_ref"] = data.get("pending_question_ref")
            call["duration_ms"] = data.get("duration_ms", call["duration_ms"])
        case kind:
            raise AssertionError(f"there is no patch of type {kind}")


def add_content(blocks: list[dict[str, Json]], data: dict[str, Json]) -> None:
    index = data["block_index"]
    if index == len(blocks):
        new = {"type": data["type"], "content": ""}
        new |= {name: data.get(name) for name in ("tool_call_id", "tool_name", "display_name")}
        if "attachment" in data:
            new["attachment"] = data["attachment"]
        blocks.append(new)
    changed = blocks[index]
    assert changed["type"] == data["type"]
    if "text_delta" in data:
        changed["content"] += data["text_delta"]
        assert data.get("content", changed["content"]) == changed["content"], "content and delta agree"
    else:
        changed["content"] = data["content"]


def arguments(text: str) -> Json:
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {"_raw": text}


def block(kind: str, content: Json, call: dict[str, Json]) -> dict[str, Json]:
    return {
        "type": kind,
        "content": content,
        "tool_call_id": call["id"],
        "tool_name": call["tool_name"],
        "display_name": call["display_name"],
    }


def find_call(turn: dict[str, Json], call_id: str) -> dict[str, Json]:
    return next(call for call in turn["tool_calls"] if call["id"] == call_id)


def of_seed(turn: dict[str, Json]) -> dict[str, Json]:
    """The fields of the seed, which `turn:end` and the messages agree on (G2)."""
    return {name: turn[name] for name in SEED_FIELDS}
