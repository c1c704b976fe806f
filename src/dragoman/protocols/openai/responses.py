"""Responses over HTTP."""

from starlette.requests import Request
from starlette.responses import Response

from dragoman.engine.abandoned_runs import AbandonedRuns
from dragoman.engine.engine import Engine
from dragoman.protocols.kit.app import AdmitStream, principal_of
from dragoman.protocols.kit.body import read_json_body
from dragoman.protocols.kit.endpoints import endpoint
from dragoman.protocols.kit.sse import open_stream, read_to_end
from dragoman.protocols.openai import wire
from dragoman.protocols.openai.errors import ResponseNotFound
from dragoman.protocols.openai.handlers import OpenAiHandlers, OpenAiOptions
from dragoman.protocols.openai.requests import CreateResponse, decode_request
from dragoman.protocols.openai.runs import RunHandle, Runs
from dragoman.protocols.openai.translate import ALL, PROTOCOL

_STREAM = "Server-sent events, from `response.created` to the response's last event and `[DONE]`."


class ResponseHandlers(OpenAiHandlers):
    """The responses."""

    def __init__(self, engine: Engine, options: OpenAiOptions, admit_stream: AdmitStream) -> None:
        self._engine = engine
        self._options = options
        self._admit_stream = admit_stream
        self._runs = Runs(engine)
        self._abandoned = AbandonedRuns(engine, PROTOCOL)

    @endpoint(
        "POST",
        "/responses",
        body=CreateResponse,
        example={"model": "assistant", "input": "Hello!"},
        streams=_STREAM,
    )
    async def create(self, request: Request) -> wire.Response | Response:
        """Run an agent and get its response.

        Disconnecting stops the run, unless it is in the background or somebody else reads it.
        """
        parsed = decode_request(await read_json_body(request, self._options.body_limit))
        async with self._runs.start(principal_of(request).user, parsed) as handle:
            if parsed.fields.stream:
                return await self._stream(handle)
            events = await self._runs.events(handle, skip=ALL)
            with self._runs.reader(handle) as reader:
                await read_to_end(reader, events)
            if events.response is None or events.response.completed_at is None:
                raise ResponseNotFound
            return events.response

    async def _stream(self, handle: RunHandle) -> Response:
        """Stream a run from its start. The run is stopped if the client leaves."""
        events, reader = await self._runs.events(handle), self._runs.reader(handle)

        def on_close(has_disconnected: bool) -> None:
            if has_disconnected and self._options.on_disconnect == "cancel":
                self._abandoned.stop(handle.session, handle.run_id)

        return await open_stream(reader, events, on_close=on_close)
