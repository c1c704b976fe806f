"""What frameworks, their models and provider packages raise, as the end of a run.

The packages may not be installed, so errors are recognized by the names of their classes and by their HTTP status.
"""

from collections.abc import Mapping

import structlog

from dragoman.core.agent import AgentError
from dragoman.core.events import StopReason

_UNAVAILABLE = ("model_unavailable", "The model is currently unavailable")
_TOO_LONG = ("context_too_long", "The conversation is too long for the model")
_FAILED = ("model_error", "The model failed")
_NO_USABLE_ANSWER = ("model_error", "The model gave no usable answer")

_ENDINGS: Mapping[str, StopReason | tuple[str, str]] = {
    # frameworks: limits, refusals, answers that cannot be used
    "GraphRecursionError": "max_steps",
    "MaxTurnsExceeded": "max_steps",
    "UsageLimitExceeded": "max_steps",
    "OutputTokenLimitExceeded": "max_tokens",
    "ContentFilterError": "refusal",
    "ModelRefusalError": "refusal",
    "InputGuardrailTripwireTriggered": "refusal",
    "OutputGuardrailTripwireTriggered": "refusal",
    "ToolInputGuardrailTripwireTriggered": "refusal",
    "ToolOutputGuardrailTripwireTriggered": "refusal",
    "RunCancelled": ("agent_cancelled", "The agent has cancelled its run"),
    "ModelBehaviorError": _NO_USABLE_ANSWER,
    "UnexpectedModelBehavior": _NO_USABLE_ANSWER,
    # models and provider packages
    "ModelContextWindowExceededError": _TOO_LONG,
    "ModelRequestRejectedError": _FAILED,
    "APIConnectionError": _UNAVAILABLE,
    "APITimeoutError": _UNAVAILABLE,
    "ConnectError": _UNAVAILABLE,
    "TransportError": _UNAVAILABLE,
}
"""The end of a run by the name of an error's class, or of the nearest base class that is listed. Pairs are the code and
the message of an `AgentError`."""
_PROVIDER_ERRORS = {"APIError", "OpenAIError", "AnthropicError", "ModelHTTPError", "ClientError"}
_LONG_TEXTS = ("context_length_exceeded", "context length", "context window", "prompt is too long", "too many tokens")

log = structlog.get_logger(__name__)


def end_of_run(error: Exception) -> StopReason:
    """The stop reason of a run that ends with this error. The log gets the provider's message.

    Raises:
        AgentError: the model failed, or the agent raised it.
        Exception: the error itself, if it is none of a framework or a model.
    """
    ending = None if isinstance(error, AgentError) else _ending(error)
    if ending is None:
        raise error
    if isinstance(ending, tuple):
        code, message = ending
        log.warning("model failed", code=code, error=str(error))
        raise AgentError(code, message, details=str(error)) from error
    return ending


def _ending(error: Exception) -> StopReason | tuple[str, str] | None:
    if isinstance(error, ExceptionGroup):  # of all models of a fallback: the last one's says why
        return _ending(error.exceptions[-1])
    names = [each.__name__ for each in type(error).__mro__]
    words = str(error).lower()
    if "UsageLimitExceeded" in names and "token" in words:
        return "max_tokens"
    found = next((_ENDINGS[name] for name in names if name in _ENDINGS), None)
    if found not in (None, _FAILED):
        return found
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and (status in (408, 429) or status >= 500):
        return _UNAVAILABLE
    if found is None and not isinstance(status, int) and _PROVIDER_ERRORS.isdisjoint(names):
        return _UNAVAILABLE if "ModelAPIError" in names else None
    return _TOO_LONG if any(text in words for text in _LONG_TEXTS) else _FAILED
