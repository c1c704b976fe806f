"""Chat Completions over HTTP."""

import re

from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.content import Json
from dragoman.protocols.kit.app import principal_of
from dragoman.protocols.kit.body import header, json_response, read_json_body
from dragoman.protocols.kit.endpoints import endpoint, request_header
from dragoman.protocols.kit.idempotency_key import IDEMPOTENCY_KEY, idempotency_key
from dragoman.protocols.openai import chat_wire
from dragoman.protocols.openai.chat_events import ChatEvents
from dragoman.protocols.openai.chat_requests import ParsedChat, decode_chat
from dragoman.protocols.openai.chat_runs import ChatRequest, ChatRuns
from dragoman.protocols.openai.delivery import Delivery, session_headers
from dragoman.protocols.openai.errors import InvalidParameter, RunFailed, RunFailedForGood
from dragoman.protocols.openai.handlers import OpenAiHandlers, OpenAiOptions

SESSION_HEADER = "X-Dragoman-Session"
_KEY = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,255}")


class ChatHandlers(OpenAiHandlers):
    """The chat completions."""

    def __init__(self, runs: ChatRuns, delivery: Delivery, options: OpenAiOptions) -> None:
        self._runs = runs
        self._delivery = delivery
        self._options = options

    @endpoint(
        "POST",
        "/chat/completions",
        body=chat_wire.ChatRequest,
        example={"model": "assistant", "messages": [{"role": "user", "content": "Hello!"}]},
        parameters=(
            request_header(SESSION_HEADER, "Names a session that is kept, with all runs of this name in it."),
            IDEMPOTENCY_KEY,
        ),
        streams="Server-sent events: chunks, and `[DONE]`.",
        errors={
            500: "The run failed. With `x-should-retry: false`, so that clients do not repeat it.",
            424: "The same for the AI SDK, which does not know this header.",
        },
    )
    async def create(self, request: Request) -> chat_wire.Completion | Response:
        """Run an agent and get its answer.

        Disconnecting stops the run.
        """
        raw = await read_json_body(request, self._options.body_limit)
        chat = decode_chat(raw)
        model, session_key = chat.fields.model or "", self._session_key(request, chat)
        wanted = ChatRequest(principal_of(request).user, chat, session_key, idempotency_key(request, raw, "openai"))
        failed = _failure_for(header(request.scope, b"user-agent") or "")
        async with self._runs.start(wanted) as handle:
            events = ChatEvents(
                handle.run_id,
                model,
                is_stream=chat.fields.stream,
                include_usage=chat.include_usage,
                cut=await self._runs.cut_messages(handle),
                failed=failed,
            )
            headers = session_headers(handle.session)
            if chat.fields.stream:
                response = await self._delivery.stream(request, handle, events, on_end=self._runs.on_answered)
                response.headers.update(headers)
                return response
            await self._delivery.read(request, handle, events, on_end=self._runs.on_answered)
            if events.completion is None:
                raise events.failure or failed("server_error", "The run has no answer")
            return json_response(events.completion, headers=headers)

    def _session_key(self, request: Request, chat: ParsedChat) -> str | None:
        """The name of the session that a request belongs to."""
        named: dict[str, Json] = {SESSION_HEADER: header(request.scope, SESSION_HEADER.lower().encode())}
        named["metadata.dragoman_session"] = chat.fields.metadata.get("dragoman_session")
        named |= {name: header(request.scope, name.lower().encode()) for name in self._options.session_headers}
        for place, key in named.items():
            if key is not None:
                if _KEY.fullmatch(key) is None:
                    raise InvalidParameter("invalid_value", "expected 1 to 255 printable characters", place)
                return str(key)
        return None


def _failure_for(user_agent: str) -> type[RunFailed]:
    """The error for a failed run that a client does not repeat (decision 50)."""
    return RunFailedForGood if "ai-sdk" in user_agent else RunFailed
