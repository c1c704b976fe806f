"""OpenAPI 3.1 from routes that are described as data, with the schemas of the structs that decode and encode.

Pure: each protocol lists its routes beside its types, and the server puts the lists together.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from dragoman.core.content import JsonObject

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
REF_TEMPLATE = "#/components/schemas/{name}"


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """Something beside the body that a request may carry. Those in the path are required."""

    name: str
    location: Literal["path", "query", "header"]
    description: str
    type: Any = str
    is_required: bool = False


class ResponseSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What may come back. No body type: an empty body, or a stream if `media_type` is one."""

    description: str
    body: Any = None
    media_type: str = "application/json"


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path. The path's variables stand in braces."""

    method: Method
    path: str
    summary: str
    responses: Mapping[int, ResponseSpec | Sequence[ResponseSpec]]
    description: str = ""
    tag: str = ""
    body: Any = None
    body_example: Any = None
    parameters: Sequence[Parameter] = ()
    is_public: bool = False
    """Whether it can be called without a key."""


COMMON_ERRORS: Mapping[int, str] = {
    401: "The API key is missing or unknown.",
    403: "The key lacks the scope, or the object belongs to another user.",
    404: "The object does not exist, or belongs to another user.",
    429: "A limit is reached; see `Retry-After`.",
    503: "The server is stopping or cannot use its store; see `Retry-After`.",
}
INPUT_ERRORS: Mapping[int, str] = {400: "The request is invalid; `code` says why."}
BODY_ERRORS: Mapping[int, str] = {
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
}


def with_prefix(routes: Sequence[Route], prefix: str) -> list[Route]:
    """The routes as they are below a prefix."""
    return [msgspec.structs.replace(route, path=prefix + route.path) for route in routes]


def document(title: str, version: str, routes: Sequence[Route], *, description: str = "") -> JsonObject:
    """The OpenAPI document of these routes."""
    types = _Types(routes)
    paths: dict[str, JsonObject] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, types)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "description": description},
        "paths": paths,
        "components": {
            "schemas": types.components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key."}},
        },
        "security": [{"key": []}],
    }


class _Types:
    """The JSON Schemas of all types that the routes name, made in one go so that they share their components."""

    def __init__(self, routes: Sequence[Route]) -> None:
        found: list[Any] = []
        for route in routes:
            named = [route.body, *(each.type for each in route.parameters)]
            named += [answer.body for answers in route.responses.values() for answer in _as_sequence(answers)]
            found += [each for each in named if each is not None and each not in found]
        schemas, self.components = msgspec.json.schema_components(found, ref_template=REF_TEMPLATE)
        self._schemas = list(zip(found, schemas, strict=True))

    def schema(self, of: Any) -> JsonObject:  # noqa: ANN401  # a type, as msgspec takes it
        return next(schema for each, schema in self._schemas if each == of)


def _operation(route: Route, types: _Types) -> JsonObject:
    operation: JsonObject = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "responses": {str(status): _response(_as_sequence(each), types) for status, each in route.responses.items()},
    }
    if route.description:
        operation["description"] = route.description
    if route.tag:
        operation["tags"] = [route.tag]
    if route.is_public:
        operation["security"] = []
    if route.parameters:
        operation["parameters"] = [_parameter(each, types) for each in route.parameters]
    if route.body is not None:
        content: JsonObject = {"schema": types.schema(route.body)}
        if route.body_example is not None:
            content["example"] = route.body_example
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    return operation


def _parameter(parameter: Parameter, types: _Types) -> JsonObject:
    return {
        "name": parameter.name,
        "in": parameter.location,
        "description": parameter.description,
        "required": parameter.is_required or parameter.location == "path",
        "schema": types.schema(parameter.type),
    }


def _response(answers: Sequence[ResponseSpec], types: _Types) -> JsonObject:
    response: JsonObject = {"description": " Or: ".join(answer.description for answer in answers)}
    content: JsonObject = {}
    for answer in answers:
        if answer.body is not None:
            content[answer.media_type] = {"schema": types.schema(answer.body)}
        elif answer.media_type != "application/json":
            content[answer.media_type] = {"schema": {"type": "string"}}
    return {**response, "content": content} if content else response


def _as_sequence(answers: ResponseSpec | Sequence[ResponseSpec]) -> Sequence[ResponseSpec]:
    return (answers,) if isinstance(answers, ResponseSpec) else answers


def _operation_id(route: Route) -> str:
    words = [part.strip("{}") for part in route.path.replace("-", "_").replace(".", "_").split("/") if part]
    return "_".join([route.method.lower(), *words])
