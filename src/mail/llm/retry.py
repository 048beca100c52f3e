"""One model call: which failures are tried again, and in which other way."""

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
from mail.llm.fallback import Tries, written_reply
from mail.llm.request import Delta, ModelRequest
from mail.llm.silence import LONGEST, patience_of

_log = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[None]]
_RATE_LIMITED: Final = 429
_REQUEST_TIMEOUT: Final = 408
_SERVER_ERROR: Final = 500
_NOT_IMPLEMENTED: Final = 501


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The number of attempts of a call, and the pauses in between.

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
            error: The error of the last attempt; its ``status`` is None for a broken connection.
            attempt: The number of attempts so far.
            left: The seconds left of the call's deadline.
        """
        limited = error.status == _RATE_LIMITED
        status = error.status or _REQUEST_TIMEOUT  # a broken connection has none
        server = status >= _SERVER_ERROR and status != _NOT_IMPLEMENTED
        if not (limited or server or status == _REQUEST_TIMEOUT):
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


async def answered(
    attempt: Callable[[float], AsyncGenerator[Delta, None]],
    request: ModelRequest,
    tries: Tries,
    policy: RetryPolicy,
    sleep: Sleep = asyncio.sleep,
) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of the first attempt that ends well.

    A refusal that names what we can change is followed at once by an attempt in the provider's way,
    another failure that may heal by the same attempt after a pause. If deltas came before that, a
    ``restart`` delta follows them. What a provider did not accept as a reply may be one.

    Args:
        attempt: Starts an attempt that may take so many seconds.
        request: The question.
        tries: The attempts of the call; the first one tells it the model's profile.
        policy: The policy of retries.
        sleep: Waits between attempts.

    Raises:
        ModelError: of the last attempt.
    """
    begun_at, failures = time.monotonic(), 0

    def left() -> float:
        return begun_at + _total(request, tries) - time.monotonic()

    while True:
        begun = said = False
        try:
            async with aclosing(attempt(left())) as deltas:
                async for delta in deltas:
                    begun = True
                    if not said and (delta.text or delta.reasoning or delta.calls):
                        said = True
                        tries.keep()
                    yield delta
        except ModelError as error:
            reply = written_reply(error)
            if reply is None and (said or not tries.another_way(error)):
                failures += 1
                pause = policy.pause(error, failures, left())
                await sleep(await _told(request.model, error, failures, pause))
        else:
            tries.keep()
            return
        if begun:
            yield Delta(restart=True)
        if reply is not None:
            tries.keep()
            yield reply
            return


def _total(request: ModelRequest, tries: Tries) -> float:
    """Return how many seconds a call may take; its first attempt finds out what the model needs."""
    if tries.base is None:
        return request.settings.deadline or LONGEST
    return patience_of(request.settings, tries.base).total


async def _told(model: str, error: ModelError, failures: int, pause: float | None) -> float:
    """Tell the log and the task's events that a call is tried again; raise if it is not."""
    if pause is None:
        error.model = model
        raise error
    known = {"model": model, "attempt": failures, "pause": pause, "reason": str(error)}
    _log.info("model call failed, retrying", extra=known)
    if waits := current_call().waits:
        await waits(model, error, failures, pause)
    return pause
