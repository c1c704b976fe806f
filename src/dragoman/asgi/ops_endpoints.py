"""The server's own pages: whether it lives, whether it is ready, what it counts, and how it is called."""

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dragoman.asgi import docs_page
from dragoman.asgi.security import Message as Scope
from dragoman.asgi.security import Receive, Send
from dragoman.core.content import JsonObject
from dragoman.engine.instrumentation import metrics
from dragoman.engine.services.keys import Doorkeeper
from dragoman.protocols.kit import openapi
from dragoman.protocols.kit.http import address_of, json_answer

TELLS = openapi.Answer(description="its state", body=dict[str, str])
ROUTES = (
    openapi.Route(
        method="GET",
        path="/healthz",
        summary="Whether the process lives",
        tag="Server",
        is_open=True,
        answers={200: TELLS},
    ),
    openapi.Route(
        method="GET",
        path="/readyz",
        summary="Whether the server takes work",
        description="503 while it starts, while it stops, and while its store takes no writes.",
        tag="Server",
        is_open=True,
        answers={200: TELLS, 503: TELLS},
    ),
    openapi.Route(
        method="GET",
        path="/metrics",
        summary="What the server counts, for Prometheus",
        description="Needs a key with the scope `admin`, unless the server is reachable from its own machine only.",
        tag="Server",
        answers={200: openapi.Answer(description="the metrics", media_type="text/plain")},
    ),
    openapi.Route(
        method="GET",
        path="/openapi.json",
        summary="This description",
        tag="Server",
        is_open=True,
        answers={200: openapi.Answer(description="OpenAPI 3.1", body=JsonObject)},
    ),
)


class Pages:
    """The pages of one server."""

    def __init__(
        self,
        *,
        state: Callable[[], Awaitable[str]],
        beside: Callable[[], Mapping[str, str]],
        doorkeeper: Doorkeeper,
        are_metrics_public: bool,
        measure: Callable[[], None],
        document: Callable[[], JsonObject],
    ) -> None:
        """Make the pages.

        Args:
            state: `ready`, or in a word why not.
            beside: what else there is to tell, and is no reason to send work elsewhere.
            doorkeeper: who checks keys.
            are_metrics_public: whether the metrics are shown without one.
            measure: sets the metrics that are read and not counted.
            document: makes the OpenAPI document, when first asked for it.
        """
        self._state = state
        self._beside = beside
        self._doorkeeper = doorkeeper
        self._are_metrics_public = are_metrics_public
        self._measure = measure
        self._document = document

    def routes(self) -> list[Route]:
        """The pages, for a router."""
        return [
            Route("/healthz", self.healthz),
            Route("/readyz", self.readyz),
            Route("/metrics", self.metrics),
            Route("/openapi.json", self.openapi),
            Route("/docs", self.docs),
            Route("/docs/", self.to_docs),
        ]

    async def healthz(self, _: Request) -> Response:
        """The process lives and its loop turns."""
        return json_answer({"status": "ok"})

    async def readyz(self, _: Request) -> Response:
        """Whether a load balancer should send work here."""
        state = await self._state()
        told = {"status": state, **self._beside()}
        return json_answer(told) if state == "ready" else json_answer(told, 503, {"retry-after": "1"})

    async def metrics(self, request: Request) -> Response:
        """What the server counts."""
        if not self._are_metrics_public:
            header = request.headers.get("authorization")
            self._doorkeeper.authenticate(header, address_of(request.scope)).require("admin")
        self._measure()
        return Response(metrics.exposition(), media_type=metrics.CONTENT_TYPE)

    async def openapi(self, _: Request) -> Response:
        """The API, for programs."""
        return json_answer(self._described)

    async def docs(self, _: Request) -> Response:
        """The API, for people."""
        return Response(
            docs_page.page(self._described),
            media_type="text/html; charset=utf-8",
            headers={"content-security-policy": docs_page.POLICY.decode()},
        )

    async def to_docs(self, _: Request) -> Response:
        """The page's links are relative to its address without a slash."""
        return RedirectResponse("../docs", 308)

    @cached_property
    def _described(self) -> JsonObject:
        return self._document()


async def nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    """What answers where no protocol and no page is."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    body = {"error": f"there is nothing at {scope['path'][:200]!r}", "code": "not_found"}
    await json_answer(body, 404)(scope, receive, send)
