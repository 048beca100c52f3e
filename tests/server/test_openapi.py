"""The OpenAPI document: the file is what is served, and what is served is true."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from fastapi import FastAPI
from jsonschema import Draft202012Validator
from schemathesis.specs.openapi import definitions

from mail.config.env import current
from mail.db.memory import MemoryStore
from mail.server.app import create_app
from mail.server.errors import STATUS_OF
from mail.server.openapi import TAGS
from mail.server.routing import MAILRoute
from tests.server.kit import Template, config

FILE = Path(__file__).resolve().parents[2] / "spec" / "openapi.yaml"
METHODS = {"get", "post", "put", "patch", "delete"}


@pytest.fixture(scope="module")
def read() -> dict[str, Any]:
    """The document as a reader of the file gets it."""
    parsed: dict[str, Any] = yaml.safe_load(FILE.read_bytes())
    return parsed


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (method, path, operation) of a document."""
    for path, item in document["paths"].items():
        for method in METHODS & item.keys():
            yield method.upper(), path, item[method]


async def test_the_file_is_what_is_served_byte_for_byte(client: httpx.AsyncClient) -> None:
    answer = await client.get("/openapi.yaml")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/yaml"
    assert answer.content == FILE.read_bytes(), "run 'make openapi'"


async def test_the_json_is_the_same_document(
    client: httpx.AsyncClient, read: dict[str, Any]
) -> None:
    answer = await client.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == read


async def test_it_does_not_depend_on_the_configuration(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(current(), "AUTH_ENDPOINT", "http://127.0.0.1:9/login")
    monkeypatch.setitem(current(), "TOKEN_INFO_ENDPOINT", "http://127.0.0.1:9/info")
    other = create_app(
        config().model_copy(update={"debug": True}),
        template=Template(),  # type: ignore[arg-type]
        store=MemoryStore(),
    )
    paths = {route.path for route in other.routes if isinstance(route, MAILRoute)}
    assert "/responses" in paths
    assert "/auth/login" not in paths
    transport = httpx.ASGITransport(other)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as second:
        answers = [await one.get("/openapi.yaml") for one in (client, second)]
    assert answers[0].content == answers[1].content


def test_it_is_a_valid_openapi_3_1_document(read: dict[str, Any]) -> None:
    assert read["openapi"].startswith("3.1.")
    Draft202012Validator(definitions.OPENAPI_31).validate(read)
    for schema in read["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_every_reference_leads_somewhere_and_every_component_is_used(read: dict[str, Any]) -> None:
    targets = set(_references(read))
    parts = read["components"]
    there = {
        f"#/components/{kind}/{name}"
        for kind in ("schemas", "headers", "responses")
        for name in parts[kind]
    }
    assert targets <= there
    assert there - targets == {"#/components/responses/MethodNotAllowed"}


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def test_it_has_every_route_but_the_hidden_ones_and_no_other(
    app: FastAPI, read: dict[str, Any]
) -> None:
    routes = [route for route in app.routes if isinstance(route, MAILRoute)]
    served = {
        (method, route.path.replace(":path}", "}"), route.endpoint.__name__)
        for route in routes
        if not route.path.startswith(("/responses", "/docs", "/console", "/mcp"))
        for method in route.methods
    }
    assert {(method, path, said["operationId"]) for method, path, said in operations(read)} == (
        served
    )


def test_its_roles_are_the_audiences_of_the_routes(app: FastAPI, read: dict[str, Any]) -> None:
    audiences = {}
    for route in app.routes:
        assert isinstance(route, MAILRoute)
        audiences[route.endpoint.__name__] = sorted(route.audience.roles)
    for _, _, said in operations(read):
        roles = said["x-mail-roles"]
        assert roles == audiences[said["operationId"]]
        assert said["security"] == ([{"bearer": []}] if roles else [])
        assert ("401" in said["responses"]) == ("403" in said["responses"]) == bool(roles)


def test_every_error_of_the_table_is_described_and_422_is_nowhere(read: dict[str, Any]) -> None:
    statuses = {status for _, _, said in operations(read) for status in said["responses"]}
    assert {str(status) for status in STATUS_OF.values()} <= statuses
    assert "422" not in statuses
    assert "422" not in FILE.read_text("utf-8")


DELETES = {
    ("DELETE", "/tasks/{task_id}"),
    ("DELETE", "/outbox/{number}"),
    ("DELETE", "/tasks/{task_id}/set-aside/{number}"),
    ("DELETE", "/memories/{name}"),
}
"""They answer with nothing, and 409 while what is named is at work."""
PUTS = {("PUT", "/memories/{name}")}
EMPTY = DELETES | {("DELETE", "/webhook/{number}")}


OF_TOKENS = {"401", "403", "429"}
OF_POSTS = {"400", "408", "409", "413"}
STATUSES = {
    "202 402 404 410 502 504 507": """
        POST /message
    """,
    "400": """
        GET /tasks
        GET /messages/unread
        GET /messages/overdue
        GET /threads
        GET /files
        GET /approvals
        GET /approvals/events
        GET /outbox
        GET /webhook
        GET /admin/tasks
    """,
    "400 404": """
        GET /tasks/{task_id}
        GET /tasks/{task_id}/events
        GET /tasks/{task_id}/set-aside
        GET /messages
        GET /messages/search
        GET /messages/{message_id}
        DELETE /swarms/{name}
        GET /approvals/{approval_id}
        GET /v1/responses/{response_id}
        DELETE /webhook/{number}
        GET /tokens
        DELETE /tokens/{prefix}
    """,
    "400 404 408 409 413 507": """
        PUT /memories/{name}
    """,
    "400 404 408 413": """
        GET /task
    """,
    "400 404 409": """
        DELETE /tasks/{task_id}/set-aside/{number}
        DELETE /tasks/{task_id}
        DELETE /outbox/{number}
    """,
    "400 404 507": """
        DELETE /threads/{thread_id}/participants/{name}
    """,
    "402 404 410 502 504 507": """
        POST /v1/responses
        POST /interswarm/message
    """,
    "404": """
        POST /tasks/{task_id}/cancel
        POST /tasks/{task_id}/set-aside/{number}/retry
        POST /messages/{message_id}/ack
        GET /threads/{thread_id}
        GET /files/{file_id}
        GET /files/{file_id}/meta
        DELETE /files/{file_id}
        GET /memories/{name}
        POST /swarms/{name}/accept
        POST /approvals/{approval_id}
        DELETE /v1/responses/{response_id}
        POST /v1/responses/{response_id}/cancel
        GET /v1/models/{model}
        POST /webhook/{number}/retry
        POST /tokens
        POST /auth/login
        GET /auth/check
    """,
    "404 409": """
        DELETE /memories/{name}
        POST /outbox/{number}/retry
    """,
    "404 507": """
        POST /messages
        POST /threads/{thread_id}/join
        POST /threads/{thread_id}/participants
        POST /files/{file_id}/transfer
        POST /teams/{team_id}/messages
        POST /teams/{team_id}/broadcasts
        POST /interswarm/forward
        POST /interswarm/back
    """,
    "503": """
        GET /health
    """,
    "507": """
        POST /threads
        POST /files
    """,
}
"""What routes answer besides."""


def test_every_route_describes_its_statuses(read: dict[str, Any]) -> None:
    own = {
        route.strip(): set(said.split())
        for said, routes in STATUSES.items()
        for route in routes.strip().splitlines()
    }
    there = {f"{method} {path}" for method, path, _ in operations(read)}
    assert own.keys() <= there
    for method, path, operation in operations(read):
        expected = {"414", "415", "431", "500"} | own.get(f"{method} {path}", set())
        expected.add("204" if (method, path) in EMPTY else "200")
        expected |= set() if path in ("/", "/health") and method == "GET" else {"503"}
        expected |= OF_TOKENS if operation["security"] else set()
        expected |= OF_POSTS if method == "POST" else set()
        assert set(operation["responses"]) == expected, (method, path)


def test_every_post_takes_an_idempotency_key(read: dict[str, Any]) -> None:
    for method, path, said in operations(read):
        names = {parameter["name"] for parameter in said.get("parameters", ())}
        assert ("Idempotency-Key" in names) == (method == "POST"), path
        changes = (method, path) in DELETES | PUTS
        assert ("409" in said["responses"]) == (method == "POST" or changes), path


def test_everything_has_words(read: dict[str, Any]) -> None:
    assert {tag for _, _, said in operations(read) for tag in said["tags"]} == set(TAGS)
    for _, path, said in operations(read):
        assert said["summary"][-1] not in ".,", path
        assert re.match(r"For (everybody|`.+`)\.", said["description"]), path
        assert all(each["description"] for each in said.get("parameters", ())), path
    for name, schema in read["components"]["schemas"].items():
        assert schema["description"], name
        objects = [schema] if "properties" in schema else schema["anyOf"][0]["anyOf"]
        fields = [pair for each in objects for pair in each["properties"].items()]
        assert all(field["description"] for _, field in fields if "const" not in field), name


def test_fastapi_gives_the_same_document(app: FastAPI, read: dict[str, Any]) -> None:
    assert app.openapi() == read


async def test_wrong_methods_are_told_the_right_ones(client: httpx.AsyncClient) -> None:
    expected = {
        "/": "GET, HEAD",
        "/health": "GET, HEAD, POST",
        "/message": "POST",
        "/tasks": "GET, HEAD",
        "/tasks/a/b": "DELETE, GET, HEAD",
        "/tasks/a/cancel": "POST",
    }
    for path, allowed in expected.items():
        for method in ("OPTIONS", "PUT", "TRACE", "PROPFIND"):
            answer = await client.request(method, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, allowed), (method, path)
            assert answer.json() == {"detail": "method not allowed", "errors": []}
    assert (await client.head("/message")).status_code == 405
