"""Which failures of a model call are tried again, and how long to wait."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from mail.core.call_context import current_call
from mail.errors import ModelError
from mail.llm.request import Delta

_log = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[None]]
_RATE_LIMITED: Final = 429
_REQUEST_TIMEOUT: Final = 408
_SERVER_ERROR: Final = 500
_NOT_IMPLEMENTED: Final = 501


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a call is tried and how long it waits in between.

    A ``Retry-After`` up to ``longest_wait`` seconds is waited for here, and a random time beyond
    it; a longer one ends the call, so that the engine can free the slot and come back later.
    """

    attempts: int = 6
    rate_limit_attempts: int = 8
    base: float = 0.5
    cap: float = 60.0
    longest_wait: float = 30.0

    def pause(self, error: ModelError, attempt: int, left: float) -> float | None:
        """Return how many seconds to wait before the next attempt, or None to give up.

        Args:
            error: How the last attempt ended; its ``status`` is None for a broken connection.
            attempt: How many attempts were made.
            left: The seconds left of the call's deadline.
        """
        limited = error.status == _RATE_LIMITED
        if not limited and not _may_heal(error.status):
            return None
        most = self.rate_limit_attempts if limited else self.attempts
        if attempt >= min(most, error.most_attempts or most):
            return None
        wait = 0.0
        if error.retry_after is not None:
            if error.retry_after > self.longest_wait:
                return None
            wait = max(error.retry_after, self.base)  # "at once" is what failed just now
        # Full jitter: callers that failed together do not come back together.
        wait += random.uniform(0.0, min(self.cap, self.base * 2.0**attempt))  # noqa: S311 - jitter
        return wait if wait < left else None


def _may_heal(status: int | None) -> bool:
    if status is None or status == _REQUEST_TIMEOUT:
        return True
    return status >= _SERVER_ERROR and status != _NOT_IMPLEMENTED


async def retrying(
    attempt: Callable[[float], AsyncGenerator[Delta, None]],
    policy: RetryPolicy,
    deadline: float | Callable[[], float],
    sleep: Sleep = asyncio.sleep,
    *,
    model: str = "",
) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of the first attempt that ends well.

    An attempt that breaks after its first delta is followed by a ``restart`` delta.

    Args:
        attempt: Starts an attempt that may take so many seconds.
        policy: What to try again.
        deadline: The seconds that all attempts and pauses may take together; asked for again
            after each attempt, which may find out how long the model needs.
        sleep: Waits between attempts.
        model: The model's name, for the log and the task's events.

    Raises:
        ModelError: of the last attempt.
    """
    begun_at = time.monotonic()

    def left() -> float:
        total = deadline() if callable(deadline) else deadline
        return begun_at + total - time.monotonic()

    made = 0
    while True:
        begun = False
        try:
            async with aclosing(attempt(left())) as deltas:
                async for delta in deltas:
                    begun = True
                    yield delta
        except ModelError as error:
            made += 1
            pause = policy.pause(error, made, left())
            if pause is None:
                error.model = model
                raise
            _log.info(
                "model call failed, retrying",
                extra={"model": model, "attempt": made, "pause": pause, "reason": str(error)},
            )
            if waits := current_call().waits:
                await waits(model, error, made, pause)
        else:
            return
        await sleep(pause)
        if begun:
            yield Delta(restart=True)
