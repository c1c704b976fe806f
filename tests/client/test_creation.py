"""What a session is created with."""

import pytest

from dragoman.client import AsyncClient, Message, Text, Unsupported
from tests.conversations import script


@pytest.mark.parametrize("protocol", ["aap"])
async def test_a_session_begins_with_a_title_labels_and_the_history_of_another(client: AsyncClient) -> None:
    source = await client.create("rehearsal")
    await source.ask("add 1 and 2")
    await source.ask("think")
    history = await source.history()
    session = await client.create("rehearsal", title="Sums", labels={"team": "blue"}, history=history)
    assert [(each.role, each.blocks) for each in await session.history()] == [
        (each.role, each.blocks) for each in history
    ]
    info = await session.info()
    assert (info.title, info.labels, info.status) == ("Sums", {"team": "blue"}, "idle")
    assert (await session.ask(script({"recall": "user"}))).text == "add 1 and 2 | think"


@pytest.mark.parametrize("protocol", ["openai"])
async def test_a_conversation_begins_with_labels_and_the_history_of_another(client: AsyncClient) -> None:
    source = await client.create("rehearsal")
    for number in range(8):
        await source.ask(f"add {number} and 2")
    history = await source.history()
    session = await client.create("rehearsal", labels={"team": "blue"}, history=history)
    assert [(each.role, each.text) for each in await session.history()] == [(each.role, each.text) for each in history]
    assert (await session.info()).labels == {"team": "blue"}
    assert (await session.ask(script({"recall": "user"}))).text.endswith("add 6 and 2 | add 7 and 2")
    with pytest.raises(Unsupported, match="AAP can"):
        await client.create("rehearsal", title="Sums")


@pytest.mark.parametrize("protocol", ["blade"])
async def test_a_session_begins_with_a_title(client: AsyncClient) -> None:
    assert (await (await client.create("rehearsal", title="Sums")).info()).title == "Sums"


@pytest.mark.parametrize("protocol", ["ag-ui"])
async def test_a_thread_begins_with_the_history_of_another(client: AsyncClient) -> None:
    source = await client.create("rehearsal")
    await source.ask("add 1 and 2")
    history = await source.history()
    session = await client.create("rehearsal", history=history)
    assert (await session.ask(script({"recall": "user"}))).text == "add 1 and 2"
    copied = (await session.history())[: len(history)]
    assert [(each.role, each.text) for each in copied] == [(each.role, each.text) for each in history]


@pytest.mark.parametrize("protocol", ["ag-ui", "agentscope", "blade"])
async def test_what_a_protocol_cannot_create_is_unsupported(client: AsyncClient, protocol: str) -> None:
    message = Message(role="user", blocks=(Text(text="hi"),))
    with pytest.raises(Unsupported, match="AAP can"):
        await client.create("rehearsal", labels={"team": "blue"})
    if protocol != "ag-ui":
        with pytest.raises(Unsupported, match="AAP can"):
            await client.create("rehearsal", history=[message])
