"""What OpenAI's Chat Completions demand of a server, one entry for each rule.

Sources are sections of the protocol's specification.
"""

from tests.requirements import Requirement


def _of(section: str, *rules: tuple[str, str]) -> tuple[Requirement, ...]:
    """Requirements of one section."""
    return tuple(Requirement(f"openai-chat:{name}", text, f"openai §{section}") for name, text in rules)


REQUIREMENTS = (
    *_of(
        "6.1",
        ("request:messages", "Messages of all roles and parts are read; instructions are those of the run alone"),
        ("request:refused", "What is wrong or not supported is 400, and `param` names the place in this body"),
        ("request:parameters", "Model parameters, tools and formats have the effect of their twins in Responses"),
    ),
    *_of(
        "6.2",
        ("answer:json", "The JSON answer has message, finish reason and usage; the content is null beside calls alone"),
        ("answer:stream", "Chunks repeat id, created and model; the first has the role, the last the finish reason"),
        ("answer:usage", "The usage is a chunk without choices, and only there if it was asked for"),
        ("answer:steps", "Steps follow one another with an empty line in between; server calls are not shown"),
        ("answer:calls", "Calls of the application's tools are `tool_calls` with dense indexes"),
        ("answer:finish", "Each stop reason has its finish reason"),
        ("answer:failed", "A failed run is 500 with `x-should-retry: false`, and in a stream an error and `[DONE]`"),
        (
            "answer:incomplete",
            "A stream that ends before its run, with its key or its server, has an error and `[DONE]`",
        ),
        (
            "answer:too-long",
            "A conversation that is too long for the model is `context_length_exceeded`, a wrong request",
        ),
        (
            "answer:approval",
            "Approvals: denied in an ephemeral session; a notice in a kept one, which text never grants",
        ),
        ("answer:cut", "What a crash cut off is in no answer; in a stream that showed it already, a notice follows it"),
        ("answer:question", "A question is text, and the next message in the session answers it"),
    ),
    *_of(
        "6.3",
        ("session:calls", "Tool messages at the end answer the calls of the session that waits for them, all of them"),
        ("session:key", "A session key names a kept, listed session of the owner, whichever header brings it"),
        ("session:ephemeral", "Without a key nothing is listed or left behind"),
        ("session:disconnect", "Closing the connection stops the run"),
        ("session:idempotency", "The same idempotency key and body get the first answer again; another body is 409"),
        ("session:list", "The list is compared with the log: next turn, edit, again, or aside"),
        ("session:agent", "Another agent than the session's is 400 `model_mismatch`"),
        ("session:busy", "A turn while a run is active is 409; a request aside is answered"),
    ),
    *_of(
        "6.4",
        ("calls:reopened", "Results whose session is gone continue from the list, and no call becomes a server's"),
        ("calls:limit", "The number of ephemeral sessions whose calls wait is limited for each owner"),
    ),
    *_of(
        "8.3",
        ("abuse:bodies", "Hostile bodies are refused within a second, and no text makes events of its own"),
        ("abuse:forged", "Invented histories, calls and approvals have no effect on what is kept"),
    ),
)
