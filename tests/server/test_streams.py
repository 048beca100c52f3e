"""Long streams: whoever lost the right to read stops reading."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from starlette.requests import Request

from mail.clock import SystemClock
from mail.core.events import TaskEvent
from mail.errors import AuthUnavailable, StoreError, Unauthenticated
from mail.server.answers import streamed, while_connected
from mail.server.at_work import AtWork, Strangers
from mail.server.connections import CLIENT, Client
from mail.server.exchange import Exchange


async def unused(message: Any) -> None:
    raise AssertionError(message)


async def three() -> AsyncIterator[TaskEvent]:
    """Yield three events."""
    for seq in (1, 2, 3):
        yield TaskEvent(task_id="t", kind="tool_call", timestamp="now", seq=seq)


@pytest.mark.parametrize(
    ("error", "seen"), [(None, 3), (Unauthenticated("revoked"), 0), (AuthUnavailable("down"), 3)]
)
async def test_a_revoked_token_ends_the_stream_and_an_outage_does_not(
    error: Exception | None, seen: int
) -> None:
    async def recheck() -> None:
        if error:
            raise error

    closed: list[str] = []
    held = AsyncExitStack()
    held.callback(closed.append, "closed")
    events = [event async for event in streamed(three(), held, recheck, every=0.0)]
    assert len(events) == seen
    assert closed == ["closed"]


async def test_a_store_that_fails_ends_the_stream_and_only_the_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken() -> AsyncIterator[TaskEvent]:
        async for event in three():
            yield event
        raise StoreError("the database is away")

    async def recheck() -> None: ...

    closed: list[str] = []
    held = AsyncExitStack()
    held.callback(closed.append, "closed")
    assert len([event async for event in streamed(broken(), held, recheck)]) == 3
    assert closed == ["closed"]
    assert "a stream ends early: the database is away" in caplog.text


async def test_a_client_that_has_left_gets_nothing_and_cancels_nothing_else() -> None:
    client = Client(gone=True)
    scope: Any = {"type": "http", "path": "/", "headers": [], "state": {CLIENT: client}}
    Exchange(scope, unused, AtWork(0), SystemClock(), Strangers(0))

    async def done() -> str:
        return "an answer that was there at once"

    assert await while_connected(Request(scope), done()) is None
    await asyncio.sleep(0)  # is not cancelled
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
