"""Answers of an authority, shared by concurrent requests and kept for a short time.

Keys are token hashes, so no token stays in memory. Look-ups of one token that overlap are one
look-up; it runs in its own task, because the request that began it may go away.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from mail.auth.callers import PRIVILEGED, Caller, hash_token
from mail.errors import AuthUnavailable, Unauthenticated

__all__ = ["Found", "TokenCache"]

POSITIVE_SECONDS: Final = 30.0
NEGATIVE_SECONDS: Final = 5.0
MAX_ENTRIES: Final = 10_000


class Found(NamedTuple):
    """A caller, and for how many seconds at most the answer holds (None: no limit of its own)."""

    caller: Caller
    valid_for: float | None = None


class _Kept(NamedTuple):
    until: float
    answer: Caller | str


class TokenCache:
    """Asks ``fetch`` about tokens, once per token at a time, and remembers the answers.

    Refusals are remembered too, but outages are not. Tokens of privileged roles are asked about
    again for every request (concurrent ones still share).

    Args:
        fetch: Returns what the authority knows of a token, or raises `Unauthenticated` or
            `AuthUnavailable`.
        now: A monotonic clock in seconds.
        max_entries: Answers kept; the least recently used one goes first.
    """

    def __init__(
        self,
        fetch: Callable[[str], Awaitable[Found]],
        *,
        now: Callable[[], float] = time.monotonic,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        self._fetch = fetch
        self._now = now
        self._max = max_entries
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._running: dict[str, asyncio.Task[Caller]] = {}

    async def get(self, token: str) -> Caller:
        """Return the caller behind a token.

        Raises:
            Unauthenticated: the authority refuses the token.
            AuthUnavailable: the authority did not answer.
        """
        key = hash_token(token)
        kept = self._recall(key)
        if isinstance(kept, Caller):
            return kept
        if kept is not None:
            raise Unauthenticated(kept)
        task = self._running.get(key)
        if task is None:
            task = asyncio.create_task(self._look_up(key, token), name="token look-up")
            self._running[key] = task
            task.add_done_callback(lambda done: self._finished(key, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # `close` ended the look-up, not the request
                raise AuthUnavailable("the server is shutting down") from None
            raise

    async def close(self) -> None:
        """Give up running look-ups and forget every answer."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._kept.clear()

    async def _look_up(self, key: str, token: str) -> Caller:
        try:
            found = await self._fetch(token)
        except Unauthenticated as error:
            self._keep(key, str(error), NEGATIVE_SECONDS)
            raise
        seconds = POSITIVE_SECONDS
        if found.valid_for is not None:
            seconds = min(seconds, found.valid_for)
        if found.caller.role not in PRIVILEGED:
            self._keep(key, found.caller, seconds)
        return found.caller

    def _recall(self, key: str) -> Caller | str | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept.until <= self._now():
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return kept.answer

    def _keep(self, key: str, answer: Caller | str, seconds: float) -> None:
        self._kept[key] = _Kept(self._now() + seconds, answer)
        self._kept.move_to_end(key)
        while len(self._kept) > self._max:
            self._kept.popitem(last=False)

    def _finished(self, key: str, task: "asyncio.Task[Caller]") -> None:
        self._running.pop(key, None)
        if not task.cancelled():
            task.exception()  # every request may have gone: no "never retrieved" warning
