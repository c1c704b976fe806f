"""What an application lets an agent know about the situation of its user, beside the user's own words. Pure.

A door notes it in the run's `props`, which the log keeps: `context`, a list of `{"description", "value"}` in words.
"""

from dragoman.core.content import JsonObject

CONTEXT_KEY = "context"


def application_context(metadata: JsonObject) -> str:
    """What a model is told of it; empty where the application said nothing."""
    entries = metadata.get(CONTEXT_KEY) or ()
    lines = [f"- {entry['description']}: {entry['value']}" for entry in entries]
    return "\n".join(("What the application says about the user's situation:", *lines)) if lines else ""
