"""Messages to the webhook reach a real server, which fails in the ways that servers do."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from mail.clock import SystemClock
from mail.core.tasks import TaskState
from mail.db.calls import CallRow
from mail.db.commit import Commit
from mail.db.memory import MemoryStore
from mail.db.records import Owner
from mail.db.webhooks import WebhookRow
from mail.errors import StoreError, UnknownWebhook
from mail.net.webhook import WebhookSender, WebhookSettings, signature
from mail.services.webhook import WebhookNews
from tests.support.hooks import EVENTS, SECRET, Receiver, post, receiving
from tests.support.sql import held_call


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


class Office:
    """A store, and what is told of its tasks."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.store, clock = MemoryStore(), SystemClock()
        self.news = WebhookNews(EVENTS, clock)
        fast = {"allow_private": True, "seconds": 2.0, "first_pause": 0.02, "longest_pause": 0.05}
        made = WebhookSettings(url=url, secret=SECRET.encode(), **fast | settings)
        self.sender = WebhookSender(self.store, lambda: "office", self.news, made, clock)

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        running = asyncio.create_task(self.sender.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def end(self, *names: str) -> list[str]:
        """End some tasks, and return the ids of the messages."""
        posts = [post(name) for name in names]
        for each in posts:
            each.webhooks = self.news.told_by(each)
            await self.store.commit(each)
        self.news.wake()
        return [row.message_id for each in posts for row in each.webhooks]

    async def rows(self) -> list[WebhookRow]:
        return await self.store.list_webhooks("office", 0, 100)

    async def until(self, *states: tuple[str, str]) -> list[WebhookRow]:
        """Wait until the rows have these states, with a part of their last errors."""
        async with asyncio.timeout(10):
            while True:
                rows = await self.rows()
                if len(rows) == len(states) and all(
                    row.state == state and error in row.last_error
                    for row, (state, error) in zip(rows, states, strict=True)
                ):
                    return rows
                await asyncio.sleep(0.005)


def held(status: str = "open") -> CallRow:
    return held_call("a1", {"to": "private"}, status=status, description="a long description")


# --- what is told ---------------------------------------------------------------------------------


def told(made: Commit, *events: str) -> list[str]:
    rows = WebhookNews(events or EVENTS, SystemClock()).told_by(made)
    return [row.event for row in rows]


def test_a_commit_tells_what_changes_for_people() -> None:
    paused = post("t", TaskState.PAUSED, calls=(held(),))
    assert told(paused) == ["approval", "paused"]
    assert told(paused, "paused") == ["paused"]
    assert told(paused, "ended") == []
    for state in (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED):
        assert told(post("t", state, calls=(held("cancelled"),))) == ["ended"]
    assert told(post("t", TaskState.RUNNING)) == []  # a run has ended; the task goes on
    assert told(post("t", snapshot=False)) == []  # any other commit of such a task
    assert told(post("t", TaskState.RUNNING, snapshot=False, calls=(held(),))) == ["approval"]


def test_a_message_is_small_and_holds_no_text_of_the_task() -> None:
    made = post("t" * 256, calls=(held(),))
    made.task = made.task._replace(title="ä" * 300)
    made.owner = Owner("office" * 40, "user", "ü" * 256)
    for row in WebhookNews(EVENTS, SystemClock()).told_by(made):
        assert len(row.body.encode()) < 4096
        assert "private" not in row.body and "description" not in row.body
        assert f'"title":"{"ä" * 199}…"' in row.body


# --- how it is sent -------------------------------------------------------------------------------


def test_a_signature_can_be_checked_by_hand() -> None:
    # printf '12.{}' | openssl dgst -sha256 -hmac secret
    expected = "773e3168d620c0ffe05ebb73e13b0cded4fe6220daed68d8fcb2a796f2d784dc"
    assert signature(b"secret", 12, b"{}") == f"t=12,v1={expected}"


def test_the_check_of_the_page_tells_what_is_genuine() -> None:
    page = (Path(__file__).parents[2] / "docs" / "breakpoints.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(import hashlib\n.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - what receivers copy
    is_genuine, made = names["is_genuine"], signature(SECRET.encode(), 1000, b"{}")
    assert is_genuine(SECRET, made, b"{}", now=1299)
    assert is_genuine(SECRET, f"{made},v2=later", b"{}", now=900)
    assert not is_genuine(SECRET, made, b"{}")  # it is old by now
    assert not is_genuine(SECRET, made, b"{ }", now=1000)
    assert not is_genuine("another-secret-of-us", made, b"{}", now=1000)
    for odd in (made.replace("1000", "1001"), "", "t=,v1=", "v1", made[:-1], f"{made}ä"):
        assert not is_genuine(SECRET, odd, b"{}", now=1000)


async def test_what_is_taken_is_removed(receiver: Receiver) -> None:
    office = Office(receiver.url)
    before = time.time()
    async with office.sending():
        (one,) = await office.end("t1")
        await receiver.until(lambda: len(receiver.taken) == 1)
        await office.until()
    assert receiver.taken[0] == {
        "id": one,
        "event": "ended",
        "swarm": "office",
        "task_id": "t1",
        "title": "Hello",
        "owner": {"role": "user", "id": "alice"},
        "moment": receiver.taken[0]["moment"],
        "status": "completed",
    }
    sent = receiver.headers[0]
    assert sent["Content-Type"] == "application/json"
    assert sent["User-Agent"].startswith("MAIL-Webhook/")
    assert abs(int(sent["X-MAIL-Signature"][2:].partition(",")[0]) - before) < 60


async def test_a_receiver_that_fails_gets_it_again_under_the_same_id(receiver: Receiver) -> None:
    receiver.answers = [500, 503, 404, 429, 401]
    office = Office(receiver.url)
    async with office.sending():
        ids = await office.end("t1")
        await receiver.until(lambda: len(receiver.taken) == 1)
        await office.until()
    assert (receiver.ids, receiver.asked) == (ids, 6)


async def test_a_slow_receiver_is_waited_for_and_one_that_hangs_is_asked_again(
    receiver: Receiver,
) -> None:
    gate = asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.1)
        return web.Response(text="taken")

    async def hang(request: web.Request) -> web.StreamResponse:
        await gate.wait()
        return web.Response()

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while not gate.is_set():
            await response.write(b"x")
            await asyncio.sleep(0.02)
        return response

    receiver.answers = [slow, hang, drip]
    office = Office(receiver.url, seconds=1.2)
    async with office.sending():
        await office.end("t1")
        await office.until()
        assert receiver.asked == 1
        (two,) = await office.end("t2")
        await office.until(("waiting", "no answer within 1.2 seconds"))
        await receiver.until(lambda: two in receiver.ids)
        await office.until()
    gate.set()
    assert receiver.asked == 4


async def test_an_answer_without_end_is_not_read(receiver: Receiver) -> None:
    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1000):
            await response.write(b"x" * 65536)
        return response

    receiver.answers = [flood]
    office = Office(receiver.url)
    async with office.sending():
        await office.end("t1")
        await office.until()
    assert receiver.asked == 1


async def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    async with receiving() as other:

        async def redirect(request: web.Request) -> web.StreamResponse:
            raise web.HTTPTemporaryRedirect(other.url)

        receiver.answers = [redirect] * 100
        office = Office(receiver.url)
        async with office.sending():
            await office.end("t1")
            await office.until(("waiting", "status 307; redirects are not followed"))
        assert other.asked == 0


async def test_a_receiver_that_is_gone_is_not_asked_again_for_the_same(receiver: Receiver) -> None:
    receiver.answers = [410]
    office = Office(receiver.url)
    async with office.sending():
        await office.end("t1")
        (row,) = await office.until(("dead", "status 410"))
        (two,) = await office.end("t2")
        await receiver.until(lambda: receiver.ids == [two])
        await office.sender.retry(row.id)
        await receiver.until(lambda: receiver.ids == [two, row.message_id])
        await office.until()
    assert receiver.asked == 3


async def test_what_is_always_refused_does_not_hold_up_the_rest(receiver: Receiver) -> None:
    bad: list[str] = []

    async def choose(request: web.Request) -> web.StreamResponse:
        message = await request.json()
        if message["id"] in bad:
            return web.Response(status=422)
        receiver.taken.append(message)
        return web.Response()

    receiver.answers = [choose] * 1000
    office = Office(receiver.url)
    bad += await office.end("t1")
    async with office.sending():
        await office.until(("waiting", "422"))
        good = await office.end(*(f"good{number}" for number in range(20)))
        await receiver.until(lambda: len(receiver.taken) == 20)
        await office.until(("waiting", "422"))
    assert sorted(receiver.ids) == sorted(good)


async def test_a_receiver_that_is_down_gets_one_probe_at_a_time(receiver: Receiver) -> None:
    receiver.answers = [503] * 8 + [503] * 3
    office = Office(receiver.url)
    ids = await office.end(*(f"t{number}" for number in range(30)))
    async with office.sending():
        await receiver.until(lambda: receiver.asked == 12)
        await receiver.until(lambda: len(receiver.taken) == 30)
        await office.until()
    assert sorted(receiver.ids) == sorted(ids)
    assert receiver.asked == 30 + 11


async def test_a_retry_after_is_kept_to(receiver: Receiver) -> None:
    async def later(request: web.Request) -> web.StreamResponse:
        return web.Response(status=429, headers={"Retry-After": "1000"})

    receiver.answers = [later]
    office = Office(receiver.url)
    async with office.sending():
        await office.end("t1")
        (row,) = await office.until(("waiting", "429"))
        wait = datetime.fromisoformat(row.next_at) - datetime.now(UTC)
        assert timedelta(seconds=900) < wait < timedelta(seconds=1001)
        await office.end("t2")
        await asyncio.sleep(0.05)
        assert receiver.asked == 1
        await office.sender.retry(row.id)
        await receiver.until(lambda: len(receiver.taken) == 2)


@pytest.mark.parametrize("status", [500, 410], ids=["waits", "given up"])
async def test_a_retry_outlives_the_attempt_that_is_under_way(
    receiver: Receiver, status: int
) -> None:
    asked, mended = asyncio.Event(), asyncio.Event()

    async def fail(request: web.Request) -> web.StreamResponse:
        asked.set()
        await mended.wait()
        return web.Response(status=status)

    receiver.answers = [fail]
    office = Office(receiver.url, first_pause=1e6, longest_pause=1e6, seconds=30.0)
    async with office.sending():
        ids = await office.end("t1")
        await asyncio.wait_for(asked.wait(), 10)
        (row,) = await office.rows()
        await office.sender.retry(row.id)
        mended.set()
        await receiver.until(lambda: receiver.ids == ids)
        await office.until()


async def test_what_is_too_old_is_given_up_with_all_that_is_as_old(receiver: Receiver) -> None:
    receiver.answers = [500] * 100
    office = Office(receiver.url, give_up_after=0.2)
    ids = await office.end(*(f"t{number}" for number in range(12)))
    async with office.sending():
        rows = await office.until(*[("dead", "the last attempt: it answers with status 500")] * 12)
        receiver.answers = []
        for row in rows:
            await office.sender.retry(row.id)
        await receiver.until(lambda: sorted(receiver.ids) == sorted(ids))
        await office.until()


async def test_a_store_that_cannot_note_what_was_taken_is_no_reason_for_a_flood(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = Office(receiver.url, first_pause=0.2, longest_pause=0.2)
    note = office.store.change_webhook

    async def fail(swarm: str, change: Any) -> bool:
        raise StoreError("the disk is full")

    monkeypatch.setattr(office.store, "change_webhook", fail)
    async with office.sending():
        ids = await office.end("t1")
        begun = time.monotonic()
        await receiver.until(lambda: receiver.asked == 3)
        assert time.monotonic() - begun > 0.2  # two pauses of at least 0.1 s
        monkeypatch.setattr(office.store, "change_webhook", note)
        await office.until()
    assert set(receiver.ids) == set(ids)


async def test_a_message_is_discarded_and_an_unknown_one_told() -> None:
    office = Office("http://127.0.0.1:1/")
    await office.end("t1")
    (row,) = await office.rows()
    await office.sender.discard(row.id)
    assert await office.rows() == []
    for act in (office.sender.discard, office.sender.retry):
        with pytest.raises(UnknownWebhook):
            await act(row.id)
