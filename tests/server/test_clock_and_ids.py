"""The generator of ids, with the system's clock and randomness."""

from dragoman.core.ids import parse_session_id
from dragoman.server.clock_and_ids import RandomIds


def test_ids_are_unique_and_sort_by_creation_however_fast_they_are_made() -> None:
    ids = RandomIds()
    made = [ids.new() for _ in range(5000)]
    assert made == sorted(set(made))
    assert all(parse_session_id(each) == each and each[14] == "7" and each[19] in "89ab" for each in made)


def test_two_generators_do_not_make_the_same_ids() -> None:
    assert not {RandomIds().new() for _ in range(100)} & {RandomIds().new() for _ in range(100)}
