"""What Pydantic AI raises, as the end of a run. Never a provider's words: they may contain a key or a prompt."""

from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    OutputTokenLimitExceeded,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)

from dragoman.core.agent import AgentError
from dragoman.core.events import StopReason

_TOKENS = "token"
_UNAVAILABLE = frozenset({408, 429})


def ending_of(error: Exception) -> StopReason | AgentError | None:
    """The stop reason, or the error for clients, of an exception. None: it is not one of the framework's."""
    match error:
        case UsageLimitExceeded():
            return "max_tokens" if _TOKENS in str(error) else "max_steps"
        case OutputTokenLimitExceeded():
            return "max_tokens"
        case ContentFilterError():
            return "refusal"
        case UnexpectedModelBehavior():
            return AgentError("model_error", "The model gave no usable answer")
        case ModelContextWindowExceededError():
            return AgentError("context_too_long", "The conversation is longer than the model accepts")
        case ModelHTTPError(status_code=status) if status not in _UNAVAILABLE and status < 500:
            return AgentError("model_error", "The model rejected the request")
        case ModelHTTPError() | ModelConnectionError() | ModelAPIError():
            return AgentError("model_unavailable", "The model cannot be reached")
        case ExceptionGroup(exceptions=several) if several:  # of all models of a fallback: the last one's says why
            return ending_of(several[-1])
    return None
