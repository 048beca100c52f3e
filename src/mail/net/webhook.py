"""Sends the messages to the webhook, signed, until its receiver has taken them.

The truth about a message is its row in the store. What the sender keeps in memory (that the
receiver does not answer, when to try again) is found again after a restart.
"""

import asyncio
import hashlib
import hmac
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from mail.clock import Clock, later
from mail.db.store import Store
from mail.db.webhooks import WebhookChange, WebhookRow
from mail.egress.rules import EgressPolicy, FetchError
from mail.errors import MAILError, UnknownWebhook
from mail.net.peers import retry_seconds
from mail.redaction import redact
from mail.services.webhook import WebhookNews
from mail.version import get_version

if TYPE_CHECKING:
    from mail.egress.posts import GuardedPosts

SIGNATURE_HEADER: Final = "X-MAIL-Signature"

_AT_ONCE: Final = 8
_LOOK_AGAIN_SECONDS: Final = 60.0
_SHARED_SECONDS: Final = 2.0
"""The same where other servers write messages, too."""
_SHORTEST_PAUSE: Final = 0.02
_LONGEST_RETRY_AFTER: Final = 3600.0
_LARGEST_POWER: Final = 30
_LARGEST_ANSWER: Final = 16 * 1024
_LONGEST_ERROR: Final = 300
_GONE: Final = 410

_log = logging.getLogger("mail.webhook")


@dataclass(frozen=True, kw_only=True)
class WebhookSettings:
    """Address, key and back-off of the webhook. Times are in seconds.

    Attributes:
        url: The receiver's address.
        secret: The key of their signatures.
        allow_private: Whether that may be a loopback or private address.
        seconds: The deadline of an attempt.
        give_up_after: The age at which a message is given up.
        first_pause: The longest pause after a first failure; it doubles with each further one.
        longest_pause: The upper bound of pauses.
    """

    url: str
    secret: bytes
    allow_private: bool = False
    seconds: float = 10.0
    give_up_after: float = 24 * 3600.0
    first_pause: float = 2.0
    longest_pause: float = 600.0

    def pause(self, failures: int) -> float:
        """Return how long to wait after so many failures in a row; the later half of the most."""
        most = self.first_pause * 2.0 ** min(failures - 1, _LARGEST_POWER)
        most = min(most, self.longest_pause)
        return random.uniform(most / 2, most)  # noqa: S311 - no secret


def signature(secret: bytes, moment: int, body: bytes) -> str:
    """Return the value of `SIGNATURE_HEADER`: the time, and what proves it and the body.

    Args:
        secret: The secret that both sides share.
        moment: Seconds since 1970.
        body: The body of the request.
    """
    signed = hmac.new(secret, f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={moment},v1={signed}"


class WebhookSender:
    """Sends what waits for the webhook, the oldest first, a few messages at a time.

    A receiver that fails gets one message at a time, after pauses that grow.

    Args:
        store: The store in which messages wait.
        swarm: Returns the name of the swarm that is served.
        news: Tells when there are new ones.
        settings: The receiver; without one (None) messages are only listed.
        clock: The time that rows are compared with.
    """

    def __init__(
        self,
        store: Store,
        swarm: Callable[[], str],
        news: WebhookNews,
        settings: WebhookSettings | None,
        clock: Clock,
    ) -> None:
        self._store = store
        self._swarm = swarm
        self._news = news
        self._settings = settings
        self._clock = clock
        self._failures = 0  # of the receiver, in a row
        self._errors = 0  # of the store
        self._until = 0.0

    async def run(self) -> None:
        """Send until cancelled, with what has waited since the last time."""
        if self._settings is None:
            return
        from mail.egress.posts import GuardedPosts

        policy = EgressPolicy(private=self._settings.allow_private)
        posts = GuardedPosts(policy, f"MAIL-Webhook/{get_version()}")
        deaf = self._store.driver.on_hint(self._hear)
        most = _SHARED_SECONDS if self._store.shared else _LOOK_AGAIN_SECONDS
        try:
            while True:
                pause = await self._look_safely(posts, self._settings)
                await self._news.wait(min(pause, most))
        finally:
            deaf()
            await posts.aclose()

    def _hear(self, topics: list[str]) -> None:
        if not topics or "webhook" in topics:
            self._news.wake()

    async def retry(self, number: int) -> None:
        """Have a message sent now, also one that was given up.

        Raises:
            UnknownWebhook: there is none of that number.
        """
        if not await self._store.retry_webhook(self._swarm(), number, self._clock.now()):
            raise UnknownWebhook(number)
        self._until = 0.0
        self._news.wake()

    async def discard(self, number: int) -> None:
        """Remove a message; one that is being sent may arrive all the same.

        Raises:
            UnknownWebhook: there is none of that number.
        """
        if not await self._store.change_webhook(self._swarm(), WebhookChange(number, "done")):
            raise UnknownWebhook(number)

    async def _look_safely(self, posts: "GuardedPosts", settings: WebhookSettings) -> float:
        """Do the same as `_look`; a store that fails is asked less and less often."""
        try:
            pause = await self._look(posts, settings)
        except MAILError as error:
            _log.warning("the store of what the webhook is told fails: %s", redact(str(error)))
        except Exception:  # noqa: BLE001 - one bad look must not be the last
            _log.exception("the webhook failed")
        else:
            self._errors = 0
            return pause
        self._errors += 1
        # What cannot be noted as taken is sent again: that must not go on as fast as it can.
        pause = settings.pause(self._errors)
        self._until = time.monotonic() + pause
        return pause

    async def _look(self, posts: "GuardedPosts", settings: WebhookSettings) -> float:
        """Send what may be sent now, and return after how many seconds to look again."""
        swarm = self._swarm()
        while True:
            held = self._until - time.monotonic()
            if held > 0:
                return held
            most = 1 if self._failures else _AT_ONCE
            rows = await self._store.due_webhooks(swarm, self._clock.now(), most)
            if not rows:
                break
            await self._send(swarm, rows, posts, settings)
        next_at = await self._store.next_webhook(swarm)
        if next_at is None:
            return _LOOK_AGAIN_SECONDS
        return min(_LOOK_AGAIN_SECONDS, max(_SHORTEST_PAUSE, -self._age(next_at)))

    async def _send(
        self,
        swarm: str,
        rows: Sequence[WebhookRow],
        posts: "GuardedPosts",
        settings: WebhookSettings,
    ) -> None:
        """Send some messages at the same time, and note what comes of it."""
        attempts = [self._attempt(swarm, row, posts, settings) for row in rows]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        failed = [result for result in results if isinstance(result, _Failure)]
        if len(failed) < len(results):
            self._failures = 0
            return
        self._failures += 1
        asked = min(max(each.retry_after for each in failed), _LONGEST_RETRY_AFTER)
        pause = max(settings.pause(self._failures), asked)
        self._until = time.monotonic() + pause
        reason = failed[-1].reason
        _log.warning("the webhook fails; the next attempt in %.1f s: %s", pause, reason)
        before = later(self._clock.now(), -settings.give_up_after)
        given_up = await self._store.give_up_webhooks(swarm, before, _too_old(settings, reason))
        if given_up:
            _log.warning("%d messages to the webhook are given up: %s", given_up, reason)

    async def _attempt(
        self, swarm: str, row: WebhookRow, posts: "GuardedPosts", settings: WebhookSettings
    ) -> "_Failure | None":
        failure = await self._post(row, posts, settings)
        if failure is None:
            change = WebhookChange(row.id, "done")
        elif await self._is_retried(swarm, row):
            return None  # what made this attempt fail may be mended: it is made once more at once
        elif failure.is_final or self._age(row.created_at) > settings.give_up_after:
            reason = failure.reason if failure.is_final else _too_old(settings, failure.reason)
            _log.warning("message %d to the webhook is given up: %s", row.id, reason)
            change = WebhookChange(row.id, "dead", row.attempts + 1, "", reason)
        else:
            attempts = row.attempts + 1
            pause = max(settings.pause(attempts), min(failure.retry_after, _LONGEST_RETRY_AFTER))
            next_at = later(self._clock.now(), pause)
            change = WebhookChange(row.id, "waiting", attempts, next_at, failure.reason)
        await self._store.change_webhook(swarm, change)
        return failure

    async def _is_retried(self, swarm: str, row: WebhookRow) -> bool:
        """Tell whether somebody has asked for another attempt since one began."""
        found = await self._store.list_webhooks(swarm, row.id - 1, 1)
        return any(one.id == row.id and one.created_at != row.created_at for one in found)

    async def _post(
        self, row: WebhookRow, posts: "GuardedPosts", settings: WebhookSettings
    ) -> "_Failure | None":
        """Post a message once, and return why that failed, if it did."""
        body = row.body.encode()
        headers = {
            "Content-Type": "application/json",
            SIGNATURE_HEADER: signature(settings.secret, int(time.time()), body),
        }
        try:
            answer = await posts.post(
                settings.url, headers, body, seconds=settings.seconds, max_bytes=_LARGEST_ANSWER
            )
        except FetchError as error:
            return _Failure(redact(str(error))[:_LONGEST_ERROR])
        if 200 <= answer.status < 300:
            return None
        reason = f"it answers with status {answer.status}"
        if 300 <= answer.status < 400:
            reason += "; redirects are not followed"
        waits = retry_seconds(answer.retry_after) or 0.0
        return _Failure(reason, waits, is_final=answer.status == _GONE)

    def _age(self, moment: str) -> float:
        """Return how many seconds ago a moment was; 0 for no text."""
        if not moment:
            return 0.0
        now = datetime.fromisoformat(self._clock.now())
        return (now - datetime.fromisoformat(moment)).total_seconds()


@dataclass(frozen=True)
class _Failure:
    """The reason of a failed attempt, and the seconds until the receiver wants the next one."""

    reason: str
    retry_after: float = 0.0
    is_final: bool = False


def _too_old(settings: WebhookSettings, reason: str) -> str:
    hours = settings.give_up_after / 3600
    return f"not taken within {hours:g} hours; the last attempt: {reason}"
