"""A receiver of webhook messages: a real server that can fail, hang, redirect and go away."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from mail.core.tasks import TaskState
from mail.db.commit import Commit
from mail.db.records import Owner, TaskRow
from mail.net.webhook import SIGNATURE_HEADER

__all__ = ["EVENTS", "SECRET", "Receiver", "post", "receiving"]

SECRET = "a-secret-for-the-webhook"

EVENTS = ("paused", "approval", "ended")
ALICE = Owner("office", "user", "alice")


@dataclass(eq=False)
class Receiver:
    """What arrives, and what is answered: ``answers`` in order, then 204.

    A number is a status; a function makes an answer of its own from the request. Signatures are
    checked.
    """

    url: str = ""
    asked: int = 0
    taken: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ids(self) -> list[str]:
        """The ids of what was taken, repeated ones again."""
        return [each["id"] for each in self.taken]

    async def until(self, reached: Callable[[], bool], seconds: float = 10.0) -> None:
        """Wait until something holds that requests bring about."""
        async with asyncio.timeout(seconds):
            while not reached():
                self.arrived.clear()
                await self.arrived.wait()

    async def receive(self, request: web.Request) -> web.StreamResponse:
        """Take a message, or do what is next among the answers."""
        body = await request.read()
        self.headers.append(dict(request.headers))
        assert_signed(request.headers[SIGNATURE_HEADER], body)
        self.asked += 1
        try:
            if self.answers:
                answer = self.answers.pop(0)
                if not isinstance(answer, int):
                    return await answer(request)
                if answer >= 300:
                    return web.Response(status=answer)
            self.taken.append(json.loads(body))
            return web.Response(status=204)
        finally:
            self.arrived.set()


def assert_signed(header: str, body: bytes, secret: str = SECRET) -> None:
    """Check a signature as a receiver does, with nothing but the documentation at hand."""
    fields = dict(part.split("=", 1) for part in header.split(","))
    signed = fields["t"].encode() + b"." + body
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(expected, fields["v1"])


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """Run a receiver on a free port."""
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/hook", receiver.receive)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        yield receiver
    finally:
        await runner.cleanup()


def post(name: str, state: TaskState = TaskState.COMPLETED, **changes: Any) -> Commit:
    """Return the commit with which a task of alice's ends."""
    task = TaskRow(name, str(ALICE), (), "2026-01-01T00:00:00+00:00", "a", state, title="Hello")
    return Commit(owner=ALICE, task=task, **{"new": True, "snapshot": True} | changes)
