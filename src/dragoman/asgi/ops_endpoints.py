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
from dragoman.engine.services.keys import Authenticator
from dragoman.protocols.kit import openapi
from dragoman.protocols.kit.http import address_of, json_response

STATUS_RESPONSE = openapi.ResponseSpec(description="its state", body=dict[str, str])
ROUTES = (
    openapi.Route(
        method="GET",
        path="/healthz",
        summary="Whether the process lives",
        tag="Server",
        is_public=True,
        responses={200: STATUS_RESPONSE},
    ),
    openapi.Route(
        method="GET",
        path="/readyz",
        summary="Whether the server takes work",
        description="503 while it starts, while it stops, and while its store takes no writes.",
        tag="Server",
        is_public=True,
        responses={200: STATUS_RESPONSE, 503: STATUS_RESPONSE},
    ),
    openapi.Route(
        method="GET",
        path="/metrics",
        summary="What the server counts, for Prometheus",
        description="Needs a key with the scope `admin`, unless the server is reachable from its own machine only.",
        tag="Server",
        responses={200: openapi.ResponseSpec(description="the metrics", media_type="text/plain")},
    ),
    openapi.Route(
        method="GET",
        path="/openapi.json",
        summary="This description",
        tag="Server",
        is_public=True,
        responses={200: openapi.ResponseSpec(description="OpenAPI 3.1", body=JsonObject)},
    ),
)


class OpsEndpoints:
    """The pages of one server."""

    def __init__(
        self,
        *,
        readiness: Callable[[], Awaitable[str]],
        extra_status: Callable[[], Mapping[str, str]],
        authenticator: Authenticator,
        are_metrics_public: bool,
        update_gauges: Callable[[], None],
        build_openapi: Callable[[], JsonObject],
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
        self._readiness = readiness
        self._extra_status = extra_status
        self._authenticator = authenticator
        self._are_metrics_public = are_metrics_public
        self._update_gauges = update_gauges
        self._build_openapi = build_openapi

    def routes(self) -> list[Route]:
        """The pages, for a router."""
        return [
            Route("/healthz", self.healthz),
            Route("/readyz", self.readyz),
            Route("/metrics", self.metrics),
            Route("/openapi.json", self.openapi),
            Route("/docs", self.docs),
            Route("/docs/", self.redirect_to_docs),
        ]

    async def healthz(self, _: Request) -> Response:
        """The process lives and its loop turns."""
        return json_response({"status": "ok"})

    async def readyz(self, _: Request) -> Response:
        """Whether a load balancer should send work here."""
        state = await self._readiness()
        told = {"status": state, **self._extra_status()}
        return json_response(told) if state == "ready" else json_response(told, 503, {"retry-after": "1"})

    async def metrics(self, request: Request) -> Response:
        """What the server counts."""
        if not self._are_metrics_public:
            header = request.headers.get("authorization")
            self._authenticator.authenticate(header, address_of(request.scope)).require("admin")
        self._update_gauges()
        return Response(metrics.exposition(), media_type=metrics.CONTENT_TYPE)

    async def openapi(self, _: Request) -> Response:
        """The API, for programs."""
        return json_response(self._openapi_document)

    async def docs(self, _: Request) -> Response:
        """The API, for people."""
        return Response(
            docs_page.render(self._openapi_document),
            media_type="text/html; charset=utf-8",
            headers={"content-security-policy": docs_page.CONTENT_SECURITY_POLICY.decode()},
        )

    async def redirect_to_docs(self, _: Request) -> Response:
        """The page's links are relative to its address without a slash."""
        return RedirectResponse("../docs", 308)

    @cached_property
    def _openapi_document(self) -> JsonObject:
        return self._build_openapi()


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """What answers where no protocol and no page is."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    body = {"error": f"there is nothing at {scope['path'][:200]!r}", "code": "not_found"}
    await json_response(body, 404)(scope, receive, send)
