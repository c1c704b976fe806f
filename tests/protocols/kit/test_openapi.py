"""The OpenAPI builder: what is described is documented, with the schemas of the structs themselves."""

from typing import Annotated

import msgspec
import pytest

from dragoman.asgi import docs_page
from dragoman.protocols.kit.openapi import Parameter, ResponseSpec, Route, document, with_prefix


class Text(msgspec.Struct, frozen=True, tag="text", tag_field="type"):
    """Some words."""

    text: Annotated[str, msgspec.Meta(max_length=10)]


class Picture(msgspec.Struct, frozen=True, tag="image", tag_field="type", forbid_unknown_fields=True):
    url: str


class Posted(msgspec.Struct, frozen=True, rename="camel"):
    block_list: list[Text | Picture]


class Problem(msgspec.Struct, frozen=True):
    error: str


ROUTES = [
    Route(
        method="POST",
        path="/things/{id}",
        summary="Make a thing",
        description="All <b>of it</b>.",
        tag="Things",
        body=Posted,
        body_example={"blockList": []},
        parameters=[
            Parameter(name="id", location="path", description="which"),
            Parameter(name="limit", location="query", description="how many", type=int),
        ],
        responses={
            200: [
                ResponseSpec(description="the thing", body=Posted),
                ResponseSpec(description="as it is made", media_type="text/event-stream"),
            ],
            204: ResponseSpec(description="nothing"),
            400: ResponseSpec(description="wrong", body=Problem),
        },
    ),
    Route(
        method="GET",
        path="/meta",
        summary="What there is",
        is_public=True,
        responses={200: ResponseSpec(description="it", body=dict)},
    ),
]


def test_a_route_is_documented_whole() -> None:
    made = document("Things", "1.2.3", with_prefix(ROUTES, "/v1"), description="About things.")
    assert made["paths"]["/v1/things/{id}"]["post"] == {
        "operationId": "post_v1_things_id",
        "summary": "Make a thing",
        "description": "All <b>of it</b>.",
        "tags": ["Things"],
        "parameters": [
            {"name": "id", "in": "path", "description": "which", "required": True, "schema": {"type": "string"}},
            {
                "name": "limit",
                "in": "query",
                "description": "how many",
                "required": False,
                "schema": {"type": "integer"},
            },
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"$ref": "#/components/schemas/Posted"},
                    "example": {"blockList": []},
                }
            },
        },
        "responses": {
            "200": {
                "description": "the thing Or: as it is made",
                "content": {
                    "application/json": {"schema": {"$ref": "#/components/schemas/Posted"}},
                    "text/event-stream": {"schema": {"type": "string"}},
                },
            },
            "204": {"description": "nothing"},
            "400": {
                "description": "wrong",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
            },
        },
    }


def test_unions_keep_their_discriminator_and_structs_their_bounds() -> None:
    schemas = document("Things", "1", ROUTES)["components"]["schemas"]
    assert schemas["Posted"]["properties"]["blockList"]["items"]["discriminator"] == {
        "propertyName": "type",
        "mapping": {"text": "#/components/schemas/Text", "image": "#/components/schemas/Picture"},
    }
    assert schemas["Text"]["properties"]["text"]["maxLength"] == 10
    assert schemas["Picture"]["additionalProperties"] is False


def test_a_route_needs_a_key_unless_it_is_open() -> None:
    made = document("Things", "1", ROUTES)
    assert made["security"] == [{"key": []}]
    assert made["paths"]["/meta"]["get"]["security"] == []
    assert "security" not in made["paths"]["/things/{id}"]["post"]


def test_the_page_reports_everything_and_runs_nothing() -> None:
    page = docs_page.render(document("Things", "1", ROUTES, description="<script>alert(1)</script>")).decode()
    assert "<script" not in page
    assert "http://" not in page, "nothing comes from elsewhere"
    assert "https://" not in page
    assert "All &lt;b&gt;of it&lt;/b&gt;." in page
    for each in ("/things/{id}", "Make a thing", "as it is made", "text/event-stream", "Picture", "Needs no key."):
        assert each in page


@pytest.mark.parametrize("count", [1, 2])
def test_two_routes_never_share_an_operation_id(count: int) -> None:
    made = document("Things", "1", with_prefix(ROUTES, "/v1") + ROUTES * (count - 1))
    ids = [operation["operationId"] for methods in made["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids) == 2 * count
