"""How a run ends after an error of a framework, its model or a provider's package: one table for all adapters."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from dragoman.adapters.model_errors import end_of_run
from dragoman.core.agent import AgentError

pydantic_ai = pytest.importorskip("pydantic_ai.exceptions", reason="the extra pydantic-ai is not installed")
langgraph = pytest.importorskip("langgraph.errors", reason="the extra langgraph is not installed")
sdk = pytest.importorskip("agents.exceptions", reason="the extra openai-agents is not installed")
openai = pytest.importorskip("openai", reason="the package openai is not installed")


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (langgraph.GraphRecursionError("25 steps"), "max_steps"),
        (sdk.MaxTurnsExceeded("50 turns"), "max_steps"),
        (pydantic_ai.UsageLimitExceeded("the request_limit of 1"), "max_steps"),
        (pydantic_ai.UsageLimitExceeded("the total_tokens_limit of 1"), "max_tokens"),
        (pydantic_ai.OutputTokenLimitExceeded("cut"), "max_tokens"),
        (pydantic_ai.ContentFilterError("filtered"), "refusal"),
        (pydantic_ai.RunCancelled("The agent run was cancelled."), "agent_cancelled"),
        (sdk.ModelBehaviorError("no such tool"), "model_error"),
        (pydantic_ai.UnexpectedModelBehavior("no output"), "model_error"),
        (pydantic_ai.ModelHTTPError(401, "m", body="key sk-1"), "model_error"),
        (pydantic_ai.ModelHTTPError(429, "m"), "model_unavailable"),
        (pydantic_ai.ModelHTTPError(400, "m", body="context_length_exceeded"), "context_too_long"),
        (pydantic_ai.ModelContextWindowExceededError("m", "8193"), "context_too_long"),
        (pydantic_ai.ModelConnectionError("m", "10.0.0.7 refused"), "model_unavailable"),
        (pydantic_ai.ModelAPIError("m", "no route"), "model_unavailable"),
        (openai.APIConnectionError(request=None), "model_unavailable"),
        (openai.OpenAIError("sk-1"), "model_error"),
        (ExceptionGroup("all models", [ValueError(), pydantic_ai.ModelHTTPError(503, "m")]), "model_unavailable"),
        (AgentError("no_credit", "No credit left"), "no_credit"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_each_error_has_one_end_and_the_provider_s_message_only_in_the_log(error: Any, end: str) -> None:
    if end in ("max_steps", "max_tokens", "refusal"):
        assert end_of_run(error) == end
        return
    with pytest.raises(AgentError) as raised, capture_logs() as logs:
        end_of_run(error)
    assert raised.value.code == end
    assert "sk-1" not in raised.value.message
    assert "10.0.0.7" not in raised.value.message
    if error is not raised.value:
        assert raised.value.details == str(error)
        assert logs == [{"event": "model failed", "log_level": "warning", "code": end, "error": str(error)}]


def test_an_error_of_the_author_is_raised_as_it_is() -> None:
    error = LookupError("mine")
    with pytest.raises(LookupError) as raised:
        end_of_run(error)
    assert raised.value is error
