"""What OpenAI's Responses, Conversations and Models demand of a server, one entry for each rule.

Sources are sections of the protocol's specification.
"""

from tests.requirements import Requirement


def _of(section: str, *rules: tuple[str, str]) -> tuple[Requirement, ...]:
    """Requirements of one section."""
    return tuple(Requirement(f"openai:{name}", text, f"openai §{section}") for name, text in rules)


REQUIREMENTS = (
    *_of(
        "1",
        ("models:list", "`GET /models` lists the agents without their aliases; `created` does not change"),
        ("models:one", "`GET /models/NAME` is one agent, by name or alias; an unknown one is 404 `model_not_found`"),
        ("paths:unknown", "An unknown path is 404 `unknown_url`, another method 405, both in the form of every error"),
        ("auth:bearer", "Every path requires a bearer key, which is checked first; a read-only key may only read"),
        ("headers:out", "Every answer has `x-request-id`, errors too; JSON answers have `openai-processing-ms`"),
    ),
    *_of(
        "5.1",
        ("stream:text", "A text turn is streamed from `response.created` to `response.completed` and `[DONE]`"),
        ("stream:equals-json", "The terminal event has the response that JSON answers have"),
    ),
)
