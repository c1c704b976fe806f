"""The console's rules for what overlaps, without a page and a server: answers that come late, and events among them."""

import json
from pathlib import Path

from tests.browser import Json
from tests.nodejs import node, output_of, require_package

WEB = Path(__file__).parents[2] / "web"
TURN = """
const turn = (id, sequence, text, more = {}) => ({
    turn_id: id, sequence, role: "assistant", status: "streaming", parent_fork_tool_call_id: null, tool_calls: [],
    blocks: [{ type: "text", content: text }], ...more,
});
const patch = (id, sequence, text) => ({
    turn_id: id, sequence, patch_type: "add_content", data: { type: "text", text_delta: text },
});
const shown = (store) => store.entries.value.map(({ id, turn }) => [id, turn.value.blocks[0].content]);
"""


async def result_of(module: str, script: str) -> Json:
    """What a function returns whose body can use the exports of a module of the console, as `it`."""
    require_package(WEB, "vite")
    source = f"""
    import {{ runnerImport }} from "vite";
    const {{ module: it }} = await runnerImport("./src/{module}", {{ configFile: false }});
    {TURN}
    console.log(JSON.stringify((() => {{ {script} }})()));
    """
    return json.loads(await output_of(node(), "--input-type=module", "--eval", source, folder=WEB))


async def test_patches_are_shown_when_they_are_flushed_once_each_and_a_gap_is_noticed() -> None:
    assert await result_of(
        "chat/turns.ts",
        """
        const store = new it.TurnStore();
        store.start(turn("a", 1, "", { patch_sequence: 4 }));
        const outcomes = [5, 5, 6, 8].map((number) => store.patch(patch("a", number, String(number))));
        outcomes.push(store.patch(patch("unknown", 1, "x")));
        const before = shown(store);
        store.flush();
        store.flush();
        return [outcomes, before, shown(store)];
        """,
    ) == [["collected", "known", "collected", "gap", "gap"], [["a", ""]], [["a", "56"]]]


async def test_events_that_come_while_the_turns_are_loaded_are_newer_than_the_answer() -> None:
    assert await result_of(
        "chat/turns.ts",
        """
        const store = new it.TurnStore();
        store.show([turn("gone", 1, "on another branch"), turn("a", 2, "as before")]);
        store.beginLoad();
        store.end(turn("a", 2, "from the event"));
        store.start(turn("b", 4, "begun meanwhile"));
        store.show([turn("a", 2, "from the answer"), turn("c", 3, "loaded")]);
        return shown(store);
        """,
    ) == [["a", "from the event"], ["c", "loaded"], ["b", "begun meanwhile"]]


async def test_an_answer_counts_unless_a_later_one_came_or_something_newer_is_known() -> None:
    assert await result_of(
        "api/latest.ts",
        """
        const latest = new it.Latest();
        const [first, second, third] = [latest.begin(), latest.begin(), latest.begin()];
        const before = [latest.isPending, first.isCurrent(), third.isCurrent()];
        const settled = [second.settle(), first.settle(), latest.isPending, third.isCurrent()];
        latest.outdate();
        return [before, settled, [latest.isPending, third.isCurrent(), third.settle()]];
        """,
    ) == [[True, False, True], [True, False, True, True], [False, False, False]]
