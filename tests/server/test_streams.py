"""Long streams: whoever lost the right to read stops reading."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from mail.core.events import TaskEvent
from mail.errors import AuthUnavailable, StoreError, Unauthenticated
from mail.server.answers import streamed


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
