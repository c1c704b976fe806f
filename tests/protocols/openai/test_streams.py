"""OpenAI's API, section 5: the events of a response."""

from tests.protocols.openai.client import OpenAiClient
from tests.protocols.openai.stream import DONE, text_of
from tests.requirements import requirement


@requirement("openai:stream:text", "openai:stream:equals-json")
async def test_a_text_turn_is_streamed_and_ends_with_what_json_answers_have(alice: OpenAiClient) -> None:
    reader = await alice.stream("hello")
    streamed = await reader.end()
    assert [each["type"].removeprefix("response.") for each in reader.events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
        DONE,
    ]
    answered = await alice.respond("hello")
    assert text_of(streamed) == text_of(answered) == "Hello! I am the rehearsal agent."
    varying = {"id", "created_at", "completed_at", "output"}
    assert {key: value for key, value in streamed.items() if key not in varying} == {
        key: value for key, value in answered.items() if key not in varying
    }
