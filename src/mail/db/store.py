"""The store: every verb, over the driver of a database."""

from math import inf
from typing import Final

from mail.db.calls import CallVerbs
from mail.db.claims import ClaimVerbs
from mail.db.commit import CommitVerbs
from mail.db.desk import LetterVerbs
from mail.db.figures import FigureVerbs
from mail.db.files import FileVerbs
from mail.db.keys import KeyVerbs, TokenVerbs
from mail.db.ledger import LedgerVerbs
from mail.db.memories import MemoryVerbs
from mail.db.move import PARTIAL, MoveVerbs
from mail.db.nodes import NodeVerbs
from mail.db.outbox import OutboxVerbs
from mail.db.preferences import PreferenceVerbs
from mail.db.relay import RelayVerbs
from mail.db.sweep import SweepVerbs
from mail.db.tasks import EventVerbs, TaskVerbs
from mail.db.webhooks import WebhookVerbs
from mail.errors import StoreError

_SHARED_SECONDS: Final = 0.2
_HINTED_SECONDS: Final = 5.0


class Store(
    TaskVerbs,
    CallVerbs,
    LedgerVerbs,
    ClaimVerbs,
    RelayVerbs,
    NodeVerbs,
    CommitVerbs,
    SweepVerbs,
    EventVerbs,
    KeyVerbs,
    MemoryVerbs,
    TokenVerbs,
    OutboxVerbs,
    LetterVerbs,
    FileVerbs,
    PreferenceVerbs,
    WebhookVerbs,
    MoveVerbs,
    FigureVerbs,
):
    """Durable state of any number of owners. Methods raise `mail.errors.StoreError`.

    To add a subject, add a class of verbs, and list it among the bases here.
    """

    _is_whole = False  # until `open` has found no import that was broken off

    @property
    def durable(self) -> bool:
        """Tell whether committed state survives the process."""
        return self.driver.durable

    @property
    def shared(self) -> bool:
        """Tell whether other processes may be at work on the same tasks."""
        return self.driver.shared

    @property
    def follow_seconds(self) -> float:
        """After how long to look for what other processes have stored; hints may be lost."""
        if not self.shared:
            return inf
        return _HINTED_SECONDS if self.driver.hears else _SHARED_SECONDS

    async def open(self) -> None:
        """Connect and migrate. May be called again; the first call does the work.

        Raises:
            StoreError: see the driver's `open`; or the database holds part of an import.
        """
        await self.driver.open()
        if self._is_whole:
            return
        if await self.unfinished_import():
            await self.close()
            raise StoreError(PARTIAL)
        self._is_whole = True

    async def close(self) -> None:
        """Finish what is queued and disconnect."""
        await self.driver.close()

    async def claim_swarm(self, swarm: str) -> None:
        """Keep other servers from one more swarm, as from the first one, until `close`.

        Raises:
            StoreLocked: another server has it.
        """
        await self.driver.claim_swarm(swarm)
