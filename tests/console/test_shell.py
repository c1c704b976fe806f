"""The console's frame: its key, its places, its themes and its languages."""

from tests.console.desk import Desk

PLACES = ("Conversations", "Protocol lens", "Memories", "API keys", "Scheduled tasks", "Attachments", "Server health")


async def test_a_key_is_asked_for_once_and_kept(desk: Desk) -> None:
    key, desk._key = desk._key, None
    await desk.open()
    await desk.sees("Enter your API key")
    await desk.write("API key", "sk-dragoman-wrong")
    await desk.press("Use this key")
    await desk.sees("The server does not know this key.")
    await desk.picture("key-wrong")
    assert key is not None
    await desk.write("API key", key)
    await desk.press("Use this key")
    await desk.until("document.querySelector('.chat')")
    desk.page.console.clear()  # browsers note every 401
    await desk.page.go(f"{desk.url}/", "document.querySelector('.chat')")


async def test_a_key_in_the_address_is_kept_and_leaves_the_address_at_once(desk: Desk) -> None:
    key, desk._key = desk._key, None
    await desk.page.go(f"{desk.url}/#key={key}", "document.querySelector('.chat')")
    assert await desk.run("location.hash") == ""
    assert await desk.run("history.length") <= 3
    assert await desk.run("localStorage.getItem('dragoman.key')") == key
