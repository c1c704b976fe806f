"""The server's own endpoints: liveness, readiness, metrics, the audit log, token budgets and the API reference."""

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dragoman.asgi import docs_page
from dragoman.asgi.security import Message as Scope
from dragoman.asgi.security import Receive, Send
from dragoman.asgi.user_endpoints import BudgetInfo, to_budget_info
from dragoman.core.audit import AuditEntry
from dragoman.core.content import JsonObject
from dragoman.core.principal import Principal
from dragoman.engine.instrumentation import metrics
from dragoman.engine.services.audit import MAX_PAGE, AuditLog
from dragoman.engine.services.token_budgets import TokenBudgets
from dragoman.protocols.kit import router
from dragoman.protocols.kit.body import json_response
from dragoman.protocols.kit.decoding import parse_query_number
from dragoman.protocols.kit.endpoints import ApiDescription, Handlers, endpoint, query
from dragoman.protocols.kit.openapi import ResponseSpec

API = ApiDescription("Server")
Status = dict[str, str]


class AuditPage(msgspec.Struct, frozen=True):
    """A part of the audit log, newest first."""

    entries: list[AuditEntry]


class Usage(msgspec.Struct, frozen=True):
    """The caller's token budgets. Empty: no limits, and nothing is counted."""

    budgets: list[BudgetInfo]


class OpsHandlers(Handlers):
    """The handlers of one server.

    Args:
        readiness: returns `ready`, or in a word why not.
        extra_status: returns members of `/readyz` that do not affect readiness.
        audit: the audit log.
        budgets: the token budgets.
        are_metrics_public: whether `/metrics` needs no key.
        exposition: returns the metrics.
        build_openapi: builds the OpenAPI document; called once, on the first request for it.
    """

    def __init__(
        self,
        *,
        readiness: Callable[[], Awaitable[str]],
        extra_status: Callable[[], Mapping[str, str]],
        audit: AuditLog,
        budgets: TokenBudgets,
        are_metrics_public: bool,
        exposition: Callable[[], Awaitable[bytes]],
        build_openapi: Callable[[], JsonObject],
    ) -> None:
        self._readiness = readiness
        self._extra_status = extra_status
        self._audit = audit
        self._budgets = budgets
        self._are_metrics_public = are_metrics_public
        self._exposition = exposition
        self._build_openapi = build_openapi

    def routes(self) -> list[router.Route]:
        """The routes to these handlers. Whether `/metrics` is open depends on the server."""
        return [
            each._replace(is_open=self._are_metrics_public) if each.path == "metrics" else each
            for each in super().routes()
        ]

    def pages(self) -> list[Route]:
        """The pages for people, which the OpenAPI document leaves out."""
        return [Route("/docs", self.docs), Route("/docs/", self.redirect_to_docs)]

    @endpoint("GET", "/healthz", is_open=True)
    async def healthz(self) -> Status:
        """Liveness.

        200: the process is alive and its event loop runs.
        """
        return {"status": "ok"}

    @endpoint("GET", "/readyz", is_open=True, other={503: ResponseSpec(description="the status", body=Status)})
    async def readyz(self) -> Status | Response:
        """Readiness.

        503 while the server starts or stops, and while its store accepts no writes.
        """
        state = await self._readiness()
        status = {"status": state, **self._extra_status()}
        return status if state == "ready" else json_response(status, 503, {"retry-after": "1"})

    @endpoint("GET", "/metrics", scope="admin", media_type="text/plain")
    async def metrics(self) -> Response:
        """Metrics, for Prometheus.

        Needs a key with the scope `admin`, unless the server listens on a loopback address only.
        """
        return Response(await self._exposition(), media_type=metrics.CONTENT_TYPE)

    @endpoint(
        "GET",
        "/audit",
        scope="admin",
        parameters=(
            query("limit", "How many entries; 100 by default."),
            query("before", "The `entry_id` of the last entry of the previous page."),
            query("user", "Only entries of this user."),
            query("action", "Only entries of this action."),
        ),
    )
    async def audit(self, query: Mapping[str, str]) -> AuditPage:
        """Audit log.

        Newest entries first. Needs the scope `admin`.
        """
        limit = parse_query_number(query, "limit", 100, MAX_PAGE)
        entries = await self._audit.page(
            before=query.get("before"), limit=limit, user=query.get("user"), action=query.get("action")
        )
        return AuditPage(entries)

    @endpoint("GET", "/usage")
    async def usage(self, principal: Principal) -> Usage:
        """Token budgets.

        What you and your key may use in the current day and month, and what is left of it.
        """
        budgets = await self._budgets.current(principal.user, principal.key_id)
        return Usage([to_budget_info(each) for each in budgets])

    @endpoint("GET", "/openapi.json", is_open=True, returns="OpenAPI 3.1")
    async def openapi(self) -> JsonObject:
        """This document."""
        return self._openapi_document

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
