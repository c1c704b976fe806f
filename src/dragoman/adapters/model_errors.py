"""Failures of models, as frameworks and provider packages raise them, as errors for clients.

The packages may not be installed, so errors are told by the names of their classes and by their HTTP status. Pure.
"""

from dragoman.core.agent import AgentError

_CONNECTION_ERRORS = {"APIConnectionError", "APITimeoutError", "ConnectError", "ModelTimeoutError", "TransportError"}
_PROVIDER_ERRORS = {"APIError", "OpenAIError", "AnthropicError", "ModelHTTPError", "ModelAPIError", "ClientError"}
_TOO_LONG = ("context_length_exceeded", "context length", "context window", "prompt is too long", "too many tokens")

NO_USABLE_ANSWER = AgentError("model_error", "The model gave no usable answer")


def model_error(error: BaseException) -> AgentError | None:
    """The error for clients; None if it is no failure of a model. A provider's words stay in the log."""
    names = {each.__name__ for each in type(error).__mro__}
    status = getattr(error, "status_code", None)
    if names & _CONNECTION_ERRORS:
        return AgentError("model_unavailable", "The model is currently unavailable")
    if not (isinstance(status, int) or names & _PROVIDER_ERRORS):
        return None
    if isinstance(status, int) and (status in (408, 429) or status >= 500):
        return AgentError("model_unavailable", "The model is currently unavailable")
    if any(text in str(error).lower() for text in _TOO_LONG):
        return AgentError("context_too_long", "The conversation is too long for the model")
    return AgentError("model_error", "The model failed")
