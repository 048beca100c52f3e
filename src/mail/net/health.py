"""Health checks of other swarms: who answers, how fast, and who is asked less often."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mail.egress.client import FetchError
from mail.net.types import SwarmEndpoint

if TYPE_CHECKING:
    import httpx

_AT_ONCE: Final = 16
_LONGEST_PAUSE: Final = 600.0

_log = logging.getLogger("mail.registry")

Observe = Callable[[SwarmEndpoint, float | None], None]
"""Takes the entry that was checked and the seconds until it answered; None when it did not."""


@dataclass(slots=True)
class _Record:
    """Of one address: how often in a row it did not answer, and when it is asked next."""

    base_url: str
    due: float = 0.0
    failures: int = 0


class HealthChecks:
    """Asks each peer in turn. One that does not answer is asked half as often with each failure.

    Args:
        peers: Returns the entries to check by name.
        observe: Takes what was found.
        ask: Asks one; raises a FetchError when it does not answer as it should.
    """

    def __init__(
        self,
        peers: Callable[[], Mapping[str, SwarmEndpoint]],
        observe: Observe,
        ask: Callable[["httpx.AsyncClient", SwarmEndpoint], Awaitable[None]],
    ) -> None:
        self._peers = peers
        self._observe = observe
        self._ask = ask
        self._records: dict[str, _Record] = {}

    async def run(
        self, client: Callable[[], "httpx.AsyncClient"], interval: Callable[[], float]
    ) -> None:
        """Check for ever.

        Args:
            client: Returns what makes the requests; called when there is a peer.
            interval: Returns the seconds between two checks of a peer that answers.
        """
        while True:
            pause = interval()
            try:
                if self._peers():
                    await self.check_due(client(), pause)
            except Exception:  # noqa: BLE001 - one bad round must not be the last
                _log.exception("a round of health checks failed")
            now = time.monotonic()
            next_due = min((each.due for each in self._records.values()), default=now + pause)
            await asyncio.sleep(max(0.0, min(next_due - now, pause)))

    async def check_due(self, client: "httpx.AsyncClient", interval: float) -> None:
        """Check the peers whose time has come, a few at once."""
        peers = self._peers()
        self._records = {
            name: record
            for name, record in self._records.items()
            if name in peers and peers[name]["base_url"] == record.base_url
        }
        places, now = asyncio.Semaphore(_AT_ONCE), time.monotonic()

        async def check(name: str, endpoint: SwarmEndpoint) -> None:
            record = self._records.setdefault(name, _Record(endpoint["base_url"]))
            if record.due > now:
                return
            async with places:
                answered = await self._check(client, endpoint)
            record.failures = 0 if answered else record.failures + 1
            pause = interval * 2 ** min(max(record.failures - 1, 0), 16)
            record.due = time.monotonic() + min(pause, max(interval, _LONGEST_PAUSE))

        await asyncio.gather(*(check(*peer) for peer in peers.items()))

    async def _check(self, client: "httpx.AsyncClient", endpoint: SwarmEndpoint) -> bool:
        name, began = endpoint["swarm_name"], time.monotonic()
        try:
            await self._ask(client, endpoint)
        except FetchError as error:
            if endpoint["is_active"]:
                _log.warning("swarm %r does not answer any more: %s", name, error)
            self._observe(endpoint, None)
            return False
        if not endpoint["is_active"]:
            _log.info("swarm %r answers again", name)
        self._observe(endpoint, time.monotonic() - began)
        return True
