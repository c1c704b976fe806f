"""The server's own endpoints: liveness, readiness, metrics and the API reference."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import cached_property

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dragoman.asgi import docs_page
from dragoman.asgi.security import Message as Scope
from dragoman.asgi.security import Receive, Send
from dragoman.core.audit import AuditEntry
from dragoman.core.content import JsonObject
from dragoman.core.principal import Principal
from dragoman.core.principal import Scope as KeyScope
from dragoman.core.refusals import Invalid
from dragoman.engine.instrumentation import metrics
from dragoman.engine.services.audit import AuditLog
from dragoman.engine.services.authentication import Authenticator
from dragoman.engine.services.token_budgets import TokenBudgets
from dragoman.protocols.kit import openapi
from dragoman.protocols.kit.app import address_of
from dragoman.protocols.kit.body import json_response

STATUS_RESPONSE = openapi.ResponseSpec(description="the status", body=dict[str, str])


class AuditPage(msgspec.Struct, frozen=True):
    """A part of the audit log, newest first."""

    entries: list[AuditEntry]


class BudgetInfo(msgspec.Struct, frozen=True):
    """A token budget of the caller. `holder` is `user` or `key`, and `period` `day` or `month`."""

    holder: str
    period: str
    limit: int
    used: int
    left: int
    resets_at: datetime


class Usage(msgspec.Struct, frozen=True):
    """The caller's token budgets. Empty: no limits, and nothing is counted."""

    budgets: list[BudgetInfo]


ROUTES = (
    openapi.Route(
        method="GET",
        path="/healthz",
        summary="Liveness",
        tag="Server",
        is_public=True,
        responses={200: STATUS_RESPONSE},
    ),
    openapi.Route(
        method="GET",
        path="/readyz",
        summary="Readiness",
        description="503 while the server starts or stops, and while its store accepts no writes.",
        tag="Server",
        is_public=True,
        responses={200: STATUS_RESPONSE, 503: STATUS_RESPONSE},
    ),
    openapi.Route(
        method="GET",
        path="/metrics",
        summary="Metrics, for Prometheus",
        description="Needs a key with the scope `admin`, unless the server listens on a loopback address only.",
        tag="Server",
        responses={200: openapi.ResponseSpec(description="the metrics", media_type="text/plain")},
    ),
    openapi.Route(
        method="GET",
        path="/audit",
        summary="Audit log",
        description="Newest entries first. `limit`, and `before`, the `entry_id` of the last one of the previous page;"
        " `user` and `action` filter. Needs the scope `admin`.",
        tag="Server",
        responses={200: openapi.ResponseSpec(description="the entries", body=AuditPage)},
    ),
    openapi.Route(
        method="GET",
        path="/usage",
        summary="Token budgets",
        description="What you and your key may use in the current day and month, and what is left of it.",
        tag="Server",
        responses={200: openapi.ResponseSpec(description="the budgets", body=Usage)},
    ),
    openapi.Route(
        method="GET",
        path="/openapi.json",
        summary="This document",
        tag="Server",
        is_public=True,
        responses={200: openapi.ResponseSpec(description="OpenAPI 3.1", body=JsonObject)},
    ),
)


class OpsEndpoints:
    """The endpoints of one server."""

    def __init__(
        self,
        *,
        readiness: Callable[[], Awaitable[str]],
        extra_status: Callable[[], Mapping[str, str]],
        authenticator: Authenticator,
        audit: AuditLog,
        budgets: TokenBudgets,
        are_metrics_public: bool,
        exposition: Callable[[], Awaitable[bytes]],
        build_openapi: Callable[[], JsonObject],
    ) -> None:
        """Make the endpoints.

        Args:
            readiness: returns `ready`, or in a word why not.
            extra_status: returns members of `/readyz` that do not affect readiness.
            authenticator: checks keys.
            audit: the audit log.
            budgets: the token budgets.
            are_metrics_public: whether `/metrics` needs no key.
            exposition: returns the metrics.
            build_openapi: builds the OpenAPI document; called once, on the first request for it.
        """
        self._readiness = readiness
        self._extra_status = extra_status
        self._authenticator = authenticator
        self._audit = audit
        self._budgets = budgets
        self._are_metrics_public = are_metrics_public
        self._exposition = exposition
        self._build_openapi = build_openapi

    def routes(self) -> list[Route]:
        """The endpoints as routes."""
        return [
            Route("/healthz", self.healthz),
            Route("/readyz", self.readyz),
            Route("/metrics", self.metrics),
            Route("/audit", self.audit),
            Route("/usage", self.usage),
            Route("/openapi.json", self.openapi),
            Route("/docs", self.docs),
            Route("/docs/", self.redirect_to_docs),
        ]

    async def healthz(self, _: Request) -> Response:
        """Answer 200: the process is alive and its event loop runs."""
        return json_response({"status": "ok"})

    async def readyz(self, _: Request) -> Response:
        """Answer 200 if a load balancer should send work here, else 503."""
        state = await self._readiness()
        status = {"status": state, **self._extra_status()}
        return json_response(status) if state == "ready" else json_response(status, 503, {"retry-after": "1"})

    async def metrics(self, request: Request) -> Response:
        """The metrics in Prometheus' text format."""
        if not self._are_metrics_public:
            await self._authenticate(request, "admin")
        return Response(await self._exposition(), media_type=metrics.CONTENT_TYPE)

    async def audit(self, request: Request) -> Response:
        """A page of the audit log."""
        await self._authenticate(request, "admin")
        query = request.query_params
        limit = query.get("limit", "100")
        if not (limit.isascii() and limit.isdigit() and len(limit) < 10):
            raise Invalid(f"expected a number, got {limit!r:.40}", path="limit")
        entries = await self._audit.page(
            before=query.get("before"), limit=int(limit), user=query.get("user"), action=query.get("action")
        )
        return json_response(AuditPage(entries))

    async def usage(self, request: Request) -> Response:
        """The caller's token budgets."""
        principal = await self._authenticate(request, "read")
        budgets = await self._budgets.current(principal.user, principal.key_id)
        return json_response(Usage([msgspec.convert(each, BudgetInfo, from_attributes=True) for each in budgets]))

    async def _authenticate(self, request: Request, scope: KeyScope) -> Principal:
        header = request.headers.get("authorization")
        principal = await self._authenticator.authenticate(header, address_of(request.scope))
        principal.require(scope)
        return principal

    async def openapi(self, _: Request) -> Response:
        """The API reference for programs."""
        return json_response(self._openapi_document)

    async def docs(self, _: Request) -> Response:
        """The API reference for people."""
        return Response(
            docs_page.render(self._openapi_document),
            media_type="text/html; charset=utf-8",
            headers={"content-security-policy": docs_page.CONTENT_SECURITY_POLICY.decode()},
        )

    async def redirect_to_docs(self, _: Request) -> Response:
        """Redirect to the address without a slash, which the page's relative links need."""
        return RedirectResponse("../docs", 308)

    @cached_property
    def _openapi_document(self) -> JsonObject:
        return self._build_openapi()


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 404 to a path that nothing is mounted at."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    sentence = f"nothing is served at {scope['path'][:200]!r}; GET /openapi.json lists the paths of this server"
    body = {"error": sentence, "code": "not_found"}
    await json_response(body, 404)(scope, receive, send)
