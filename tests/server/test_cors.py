"""Pages of other origins: those that are named may call and read, all others may not."""

from collections.abc import AsyncIterator

import httpx
import pytest

from mail.db.memory import MemoryStore
from mail.server.app import create_app
from mail.server.idempotency import REPLAYED
from tests.server.kit import Template, bearer, config, serving

OURS, OTHER = "https://app.example.org", "https://evil.example.org"


@pytest.fixture
async def client(store: MemoryStore, template: Template) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that names one origin."""
    settings = config().model_copy(update={"cors_origins": [OURS]})
    async with serving(create_app(settings, template=template, store=store)) as client:  # type: ignore[arg-type]
        yield client


def words(answer: httpx.Response, header: str) -> set[str]:
    return {word.strip().lower() for word in answer.headers.get(header, "").split(",")}


def asking(origin: str, method: str = "POST") -> dict[str, str]:
    return {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "authorization, content-type, idempotency-key",
    }


async def test_a_named_page_may_ask_without_a_token(client: httpx.AsyncClient) -> None:
    answer = await client.options("/message", headers=asking(OURS))
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == OURS
    assert {"authorization", "idempotency-key", "last-event-id"} <= words(
        answer, "access-control-allow-headers"
    )
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize(("origin", "method"), [(OTHER, "POST"), (OURS, "PUT")])
async def test_what_is_not_allowed_is_refused_with_the_place_to_look(
    client: httpx.AsyncClient, origin: str, method: str
) -> None:
    answer = await client.options("/message", headers=asking(origin, method))
    assert answer.status_code == 400
    detail = answer.json()["detail"]
    assert "cors_origins in mail.toml" in detail
    assert "may use GET, POST, DELETE, and send Authorization, Idempotency-Key" in detail
    assert OTHER not in answer.headers.values()
    assert "origin" in words(answer, "vary")


async def test_a_named_page_may_read_answers_and_errors_with_what_their_headers_tell(
    client: httpx.AsyncClient,
) -> None:
    headers = bearer("alice") | {"Origin": OURS, "Idempotency-Key": "k-1"}
    sent = [await client.post("/message", json={"body": "hi"}, headers=headers) for _ in range(2)]
    refused = await client.get("/whoami", headers={"Origin": OURS})
    assert [answer.status_code for answer in (*sent, refused)] == [200, 200, 401]
    for answer in (*sent, refused):
        assert answer.headers["access-control-allow-origin"] == OURS
        assert "access-control-allow-credentials" not in answer.headers
        readable = words(answer, "access-control-expose-headers")
        assert {"retry-after", "x-request-id", REPLAYED.lower()} <= readable
    assert REPLAYED in sent[1].headers


async def test_another_page_cannot_read_an_answer(client: httpx.AsyncClient) -> None:
    answer = await client.get("/whoami", headers=bearer("alice") | {"Origin": OTHER})
    assert "access-control-allow-origin" not in answer.headers
    assert "origin" in words(answer, "vary")
