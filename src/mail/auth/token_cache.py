"""Answers of an authority, shared by concurrent requests and kept for a short time.

Keys are token hashes, so no token stays in memory. Look-ups of one token that overlap are one
look-up; it runs in its own task, because the request that began it may go away. Whoever tries one
token after the other pushes no good token out, and waits behind nobody but others that are unknown.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Final, NamedTuple, TypeVar

from mail.auth.callers import PRIVILEGED, Caller, hash_token
from mail.errors import AuthUnavailable, Unauthenticated

POSITIVE_SECONDS: Final = 30.0
NEGATIVE_SECONDS: Final = 5.0
MAX_ENTRIES: Final = 10_000
UNKNOWN_AT_ONCE: Final = 16
"""Look-ups at a time of tokens that have not been good lately."""
UNKNOWN_WAITING: Final = 1000
"""Requests at a time with such tokens."""

T = TypeVar("T")


class Found(NamedTuple):
    """A caller, and for how many seconds at most the answer holds (None: no limit of its own)."""

    caller: Caller
    valid_for: float | None = None


class TokenCache:
    """Asks ``fetch`` about tokens, once per token at a time, and remembers the answers.

    Refusals are remembered too, but outages are not. Tokens of privileged roles are asked about
    again for every request (concurrent ones still share).

    Args:
        fetch: Returns what the authority knows of a token, or raises `Unauthenticated` or
            `AuthUnavailable`.
        now: A monotonic clock in seconds.
        max_entries: Answers of each kind that are kept; the least recently used one goes first.
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
        # By the hash of a token the answer, and until when it counts.
        self._good: OrderedDict[str, tuple[Caller, float]] = OrderedDict()
        self._refused: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._strangers = asyncio.Semaphore(UNKNOWN_AT_ONCE)
        self._running: dict[str, asyncio.Task[Caller]] = {}
        self._waiting = 0

    async def get(self, token: str) -> Caller:
        """Return the caller behind a token.

        Raises:
            Unauthenticated: the authority refuses the token.
            AuthUnavailable: the authority did not answer, or too many wait to be told apart.
        """
        key = hash_token(token)
        good = self._good.get(key)
        if good is not None and good[1] > self._now():
            self._good.move_to_end(key)
            return good[0]
        reason, until = self._refused.get(key, ("", 0.0))
        if until > self._now():
            raise Unauthenticated(reason)
        if good is not None:
            return await self._answer(key, token)
        if self._waiting >= UNKNOWN_WAITING:
            raise AuthUnavailable("too many unknown tokens are being checked; try again later")
        self._waiting += 1
        try:
            return await self._answer(key, token)
        finally:
            self._waiting -= 1

    async def _answer(self, key: str, token: str) -> Caller:
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
        self._good.clear()
        self._refused.clear()

    async def _look_up(self, key: str, token: str) -> Caller:
        try:
            async with nullcontext() if key in self._good else self._strangers:
                found = await self._fetch(token)
        except Unauthenticated as error:
            self._good.pop(key, None)
            self._keep(self._refused, key, (str(error), self._now() + NEGATIVE_SECONDS))
            raise
        seconds = POSITIVE_SECONDS
        if found.valid_for is not None:
            seconds = min(seconds, found.valid_for)
        if found.caller.role in PRIVILEGED:
            seconds = 0.0  # known, but asked about again
        self._refused.pop(key, None)
        self._keep(self._good, key, (found.caller, self._now() + seconds))
        return found.caller

    def _keep(self, kept: OrderedDict[str, T], key: str, answer: T) -> None:
        kept[key] = answer
        kept.move_to_end(key)
        if len(kept) > self._max:
            kept.popitem(last=False)

    def _finished(self, key: str, task: "asyncio.Task[Caller]") -> None:
        self._running.pop(key, None)
        if not task.cancelled():
            task.exception()  # every request may have gone: no "never retrieved" warning
