"""AAP, section 18: the worked exchanges, with the gardener."""

import json

from tests.protocols.aap.client import AapClient, anonymous, assistant_text, result
from tests.protocols.aap.stream import check_turn, normalize_frames, parse_frames
from tests.requirements import requirement

CREATION = {
    "agent": {
        "name": "gardener",
        "tools": [{"name": "soil_report", "trust": True}, {"name": "order_seeds"}],
        "options": {"units": "metric", "shop_key": "k-81-22"},
    },
    "messages": [{"role": "system", "content": "The garden is in a cold valley."}],
    "tools": [
        {
            "name": "garden_map",
            "description": "Beds and what grows in them",
            "parameters": {"type": "object", "properties": {"bed": {"type": "string"}}},
        }
    ],
}
QUESTION = {"role": "user", "content": "What should go into bed 4?"}


@requirement("aap:worked:exchanges")
async def test_the_gardeners_exchanges_hold_as_they_are_written(aap_client: AapClient) -> None:
    made = await aap_client.post("/sessions", CREATION)
    assert (made.status, set(made.json)) == (201, {"sessionId"})
    path = f"/sessions/{made.json['sessionId']}"

    shown = (await aap_client.get(path)).json
    shown.pop("_meta", None)
    assert shown == {
        "sessionId": made.json["sessionId"],
        "agent": {**CREATION["agent"], "options": {"units": "metric", "shop_key": "***"}},  # type: ignore[dict-item]  # a mapping by its writing above
        "tools": CREATION["tools"],
    }

    asked = await aap_client.post(f"{path}/turns", {"stream": "message", "messages": [QUESTION]})
    frames = parse_frames(asked.body)
    check_turn(frames, "message")
    c1, c2, c3 = (frame.data["toolCallId"] for frame in frames if frame.event == "tool_call")
    assert normalize_frames(frames) == [
        ("turn_start", {}),
        ("thinking", {"thinking": "I need the map, the soil, and perhaps seeds."}),
        ("tool_call", {"toolCallId": c1, "name": "garden_map", "input": {"bed": "4"}}),
        ("tool_call", {"toolCallId": c2, "name": "soil_report", "input": {"bed": "4"}}),
        ("tool_call", {"toolCallId": c3, "name": "order_seeds", "input": {"kind": "kale", "packs": 1}}),
        ("tool_result", {"toolCallId": c2, "content": "pH 6.4, heavy"}),
        ("turn_stop", {"stopReason": "tool_use"}),
    ]

    mapped = result(c1, "bed 4: empty, half shade")
    denied = {"role": "tool_permission", "toolCallId": c3, "granted": False, "reason": "seeds in the shed"}
    early = await aap_client.post(f"{path}/turns", {"messages": [mapped]})
    assert (early.status, {**early.json, "error": ""}) == (
        400,
        {"error": "", "code": "tool_results_missing", "missing": [c3]},
    )
    answered = (await aap_client.post(f"{path}/turns", {"messages": [mapped, denied]})).json
    answered.pop("_meta", None)
    refused = result(c3, "Tool call denied: seeds in the shed")
    kale = assistant_text("Kale from the shed suits bed 4.")
    assert answered == {"stopReason": "end_turn", "messages": [refused, kale]}

    history = (await aap_client.get(f"{path}/history?type=full")).json
    uses = [
        {"type": "tool_use", "toolCallId": each, "name": name, "input": arguments}
        for each, name, arguments in (
            (c1, "garden_map", {"bed": "4"}),
            (c2, "soil_report", {"bed": "4"}),
            (c3, "order_seeds", {"kind": "kale", "packs": 1}),
        )
    ]
    thought = {"type": "thinking", "thinking": "I need the map, the soil, and perhaps seeds."}
    expected = [
        CREATION["messages"][0],  # type: ignore[index]  # a list by its writing above
        QUESTION,
        {"role": "assistant", "content": [thought, *uses]},
        result(c2, "pH 6.4, heavy"),
        mapped,
        refused,
        kale,
    ]
    assert anonymous(history["history"]["full"]) == anonymous(expected)
    assert "k-81-22" not in json.dumps(history)


@requirement("aap:worked:exchanges", "aap:turn:failure")
async def test_the_gardeners_own_error_reaches_the_client_with_its_code(aap_client: AapClient) -> None:
    session = await aap_client.create("gardener")
    turn = await session.run("Dig!")
    assert (turn.stop, turn.error) == ("error", {"code": "too_dry", "message": "The beds are too dry."})
