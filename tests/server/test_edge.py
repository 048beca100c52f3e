"""What every request meets first: sizes, encodings, depth, strangers and surprises."""

import asyncio
import logging
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from starlette.datastructures import QueryParams

from mail.db.memory import MemoryStore
from mail.errors import ProtocolError, StoreError
from mail.server.app import create_app
from mail.server.bodies import parse_object
from mail.server.deps import PUBLIC
from tests.server.kit import Script, Template, bearer, config, serving


async def test_a_body_past_the_limit_is_413_with_and_without_its_length(
    store: MemoryStore, template: Template
) -> None:
    app = create_app(config(max_body_bytes=1000), template=template, store=store)  # type: ignore[arg-type]
    sent = 0

    async def chunks() -> Any:
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield b" " * 100

    async with serving(app) as client:
        known = await client.post("/message", content=b" " * 1001, headers=bearer("alice"))
        counted = await client.post("/message", content=chunks(), headers=bearer("alice"))
        fits = await client.post("/message", content=b" " * 1000, headers=bearer("alice"))
    assert [known.status_code, counted.status_code, fits.status_code] == [413, 413, 400]
    assert known.json()["detail"] == (
        "the request body is larger than 1000 bytes; send less, or raise "
        "[server.limits] max_body_bytes"
    )


async def test_a_compressed_body_is_415(client: httpx.AsyncClient) -> None:
    headers = bearer("alice") | {"Content-Encoding": "gzip"}
    answer = await client.post("/message", content=b"x", headers=headers)
    assert answer.status_code == 415


async def test_large_headers_are_431(client: httpx.AsyncClient) -> None:
    answer = await client.get("/", headers={"X-Long": "x" * 17_000})
    assert answer.status_code == 431
    assert answer.json()["detail"] == "the headers are larger than 16384 bytes; the limit is fixed"


async def test_a_query_of_more_than_100_parameters_is_refused_before_it_is_read(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr(QueryParams, "__init__", lambda *_: read.append("read"))
    answer = await client.get("/tasks?" + "a&" * 100, headers=bearer("alice"))
    assert answer.status_code == 400
    assert "more than 100 parameters" in answer.json()["detail"]
    answer = await client.get("/health?" + "a&" * 99)  # it has none
    assert answer.status_code == 200
    assert not read


async def test_deeply_nested_json_is_400(client: httpx.AsyncClient) -> None:
    text = b'{"body":"x","kwargs":' + b"[" * 65 + b"]" * 65 + b"}"
    answer = await client.post("/message", content=text, headers=bearer("alice"))
    assert answer.status_code == 400
    assert "64 levels" in answer.json()["detail"]


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":"' + b'\\"' * 500_000,
        b"[" * 1_000_000,
        b'{"a":[' + b"[]," * 300_000 + b"1]}",
        b'{"a":' + b"9" * 1_000_000 + b"}",
        b'""' * 500_000,
    ],
)
@pytest.mark.timeout(5)
def test_hostile_json_is_refused_quickly(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_object(text, 50_000)


async def test_unknown_paths_and_methods_are_json(client: httpx.AsyncClient) -> None:
    for path in ("/nowhere", "/docs/nothing", "/redoc", "/ui/agents", "/responses"):
        answer = await client.get(path)
        assert answer.status_code == 404
        assert answer.json() == {"detail": "not found", "errors": []}
    answer = await client.delete("/message")
    assert answer.status_code == 405
    assert answer.json() == {"detail": "method not allowed", "errors": []}
    assert answer.headers["allow"] == "POST"


async def test_no_origin_is_invited(client: httpx.AsyncClient) -> None:
    answer = await client.get("/", headers={"Origin": "http://localhost:3000"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_every_answer_forbids_sniffing_and_storing(client: httpx.AsyncClient) -> None:
    answer = await client.get("/whoami", headers=bearer("alice"))
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


async def test_what_nobody_foresaw_is_500_with_the_cause_only_in_the_log(
    app: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> None:
        raise RuntimeError("the inner secret")

    app.get("/broken", dependencies=[Depends(PUBLIC)])(broken)
    with caplog.at_level(logging.ERROR):
        async with serving(app) as client:
            answer = await client.get("/broken")
    assert answer.status_code == 500
    assert answer.json()["detail"] == "internal error"
    assert "secret" not in answer.text
    assert answer.json()["request_id"] in caplog.text
    assert "the inner secret" in caplog.text


async def test_a_failing_store_is_503_and_its_reason_stays_inside(
    client: httpx.AsyncClient, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(*_: Any, **__: Any) -> None:
        raise StoreError("disk /secret/path is full")

    await client.get("/whoami", headers=bearer("alice"))
    for name in ("list_tasks", "load_task"):
        monkeypatch.setattr(store, name, down)
    for path in ("/tasks", "/tasks/t-1"):
        answer = await client.get(path, headers=bearer("alice"))
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "5"
        assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/health", 200),
        ("/whoami", 200),
        ("/tasks", 200),
        ("/openapi.json", 200),
        ("/docs", 200),
        ("/tasks/none", 404),
        ("/nowhere", 404),
        ("/message", 405),
    ],
)
async def test_head_is_answered_as_get_without_the_body(
    client: httpx.AsyncClient, path: str, status: int
) -> None:
    got = await client.get(path, headers=bearer("alice"))
    asked = await client.head(path, headers=bearer("alice"))
    assert (got.status_code, asked.status_code) == (status, status)
    assert asked.content == b""
    other = {"x-request-id", "date"}
    assert {*asked.headers} == {*got.headers}
    for name in {*got.headers} - other - {"content-length"}:
        assert asked.headers[name] == got.headers[name], name


async def test_head_needs_a_token_where_get_does(client: httpx.AsyncClient) -> None:
    assert (await client.head("/whoami")).status_code == 401
    assert (await client.head("/health")).status_code == 200


async def test_head_of_a_stream_ends_at_once_and_keeps_no_place(
    app: FastAPI, client: httpx.AsyncClient, script: Script
) -> None:
    body = {"body": "hang", "task_id": "t-1"}
    posted = asyncio.create_task(client.post("/message", json=body, headers=bearer("alice")))
    await asyncio.wait_for(script.entered.wait(), 10)
    for _ in range(3):  # on one connection
        answer = await client.head("/tasks/t-1/events", headers=bearer("alice"))
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.content == b""
    async with asyncio.timeout(10):
        while app.state.mail.quotas.open_streams:
            await asyncio.sleep(0.005)
    script.gate.set()
    assert (await posted).status_code == 200
