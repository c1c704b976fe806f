"""Memory for responses that clients have not read."""

from dragoman.engine.services.unread_responses import UnreadResponses


class Connections:
    """Unread responses with a limit of 100 bytes, and the connections that were cut off."""

    def __init__(self) -> None:
        self.unread = UnreadResponses(100)
        self.cut: list[str] = []

    def add(self, connection: str, reader: str, size_bytes: int) -> None:
        self.unread.add(connection, reader, size_bytes, lambda: self.cut.append(connection))


def test_the_oldest_response_of_the_reader_with_the_most_is_cut_off() -> None:
    connections = Connections()
    connections.add("bob 1", "bob", 30)
    for number in range(5):
        connections.add(f"ann {number}", "ann", 20)
    assert connections.cut == ["ann 0", "ann 1"]
    connections.add("bob 2", "bob", 40)
    assert connections.cut == ["ann 0", "ann 1", "bob 1"]


def test_what_was_read_does_not_count() -> None:
    connections = Connections()
    for number in range(10):
        connections.add(f"{number}", "ann", 60)
        connections.unread.discard(f"{number}")
        connections.unread.discard(f"{number}")
    assert not connections.cut
    assert not connections.unread.is_slow("ann")


def test_a_response_that_is_larger_than_the_limit_cuts_off_nobody_and_gives_way_to_the_next() -> None:
    connections = Connections()
    connections.add("bob 1", "bob", 10)
    connections.add("large", "ann", 500)
    assert connections.cut == []
    connections.add("next", "ann", 500)
    assert connections.cut == ["large"]
    connections.add("bob 2", "bob", 10)
    assert connections.cut == ["large", "next"]


def test_a_reader_with_an_eighth_of_the_limit_is_slow() -> None:
    connections = Connections()
    connections.add("1", "ann", 12)
    assert not connections.unread.is_slow("ann")
    connections.add("2", "ann", 1)
    assert connections.unread.is_slow("ann")
    assert not connections.unread.is_slow("bob")
