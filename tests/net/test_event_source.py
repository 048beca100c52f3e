"""Events over HTTP: readers that stall are cut off, readers that leave close their events."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mail.core.events import TaskEvent
from mail.net.sse import event_source
from tests.server.kit import frames, serving


class Source:
    """An endless source of events that knows whether it was closed."""

    def __init__(self, *, size: int, kind: str = "new_message") -> None:
        self.size, self.kind = size, kind
        self.closed = asyncio.Event()
        self.sent = 0
        self.rows = 10**9

    async def events(self) -> AsyncIterator[TaskEvent]:
        try:
            while self.sent < self.rows:
                self.sent += 1
                seq = 0 if self.kind == "ping" else self.sent
                extra = {"text": "x" * self.size}
                fields = {"task_id": "t", "kind": self.kind, "timestamp": "now"}
                yield TaskEvent(**fields, seq=seq, extra=extra, size=self.size)  # type: ignore[arg-type]
                await asyncio.sleep(0)
        finally:
            self.closed.set()

    async def respond(self, request: Request) -> Response:
        return event_source(self.events())


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mail.net.sse.SEND_SECONDS", 0.2)


def app_of(source: Source) -> Starlette:
    """Return an app that serves a source."""
    return Starlette(routes=[Route("/", source.respond)])


async def test_a_reader_that_takes_nothing_is_cut_off() -> None:
    source = Source(size=100_000)
    async with serving(app_of(source)) as client:
        port = client.base_url.port
        with socket.create_connection(("127.0.0.1", port)) as stalled:
            stalled.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.wait_for(source.closed.wait(), 10)
        assert source.sent < 1000


async def test_a_reader_that_leaves_closes_its_events() -> None:
    source = Source(size=10)
    async with serving(app_of(source)) as client:
        async with client.stream("GET", "/") as stream:
            text = await anext(stream.aiter_text())
        await asyncio.wait_for(source.closed.wait(), 10)
    assert frames(text)[0]["id"] == "1"


async def test_heartbeats_have_a_name_and_no_id() -> None:
    source = Source(size=1, kind="ping")
    async with serving(app_of(source)) as client, client.stream("GET", "/") as stream:
        text = await anext(stream.aiter_text())
    first = frames(text)[0]
    assert first["event"] == "ping"
    assert "id" not in first


async def test_a_large_event_comes_in_slices_and_is_whole() -> None:
    source = Source(size=300_000)
    source.rows = 3
    async with serving(app_of(source)) as client, client.stream("GET", "/") as stream:
        chunks = [chunk async for chunk in stream.aiter_raw()]
    assert max(map(len, chunks)) < 100_000
    found = frames(b"".join(chunks).decode())
    assert [event["id"] for event in found] == ["1", "2", "3"]
    assert [event.get("retry") for event in found] == ["2000", None, None]
    texts = [json.loads(event["data"])["extra_data"]["text"] for event in found]
    assert texts == ["x" * 300_000] * 3
