"""Mail to other swarms in tests: messages, a registry that knows peers, a store of waiting mail."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mail.clock import SystemClock
from mail.core.envelope import Envelope
from mail.core.interswarm import DeliveryOutcome, wrap
from mail.core.wire import MAILInterswarmMessage, MAILMessage
from mail.db.records import OutboxChange, OutboxRow, Owner, TaskRow
from mail.errors import StoreError
from mail.net import InterswarmRouter, SwarmRegistry
from mail.testing import LoopbackPeer

CLOCK = SystemClock()
INES = Owner("alpha", "user", "ines")
OWNER = "user:ines@alpha"
HERE = "http://127.0.0.1:8000"


def message(
    *recipients: str, task: str = "trip", kind: str = "request", sender: str = "guide"
) -> MAILMessage:
    """Return a message of an agent as the runtime has it."""
    return Envelope(
        id=CLOCK.new_id(),
        timestamp=CLOCK.now(),
        kind=kind,  # type: ignore[arg-type]
        task_id=task,
        ref=CLOCK.new_id(),
        sender={"address_type": "agent", "address": sender},
        recipients=tuple({"address_type": "agent", "address": one} for one in recipients),
        subject="Wind",
        body="How strong?",
        sender_swarm="alpha",
    ).to_wire()


def wrapper(
    recipient: str = "supervisor@beta", task: str = "trip", contributors: Sequence[str] = (OWNER,)
) -> MAILInterswarmMessage:
    """Return such a message in the wrapper for its recipient's swarm."""
    return wrap(
        Envelope.from_wire(message(recipient, task=task)),
        recipient.partition("@")[2],
        wire_id=task,
        task_owner=OWNER,
        contributors=contributors,
    )


@asynccontextmanager
async def routing(folder: Path, *peers: LoopbackPeer) -> AsyncIterator[InterswarmRouter]:
    """Give a router of the swarm alpha, whose registry knows the peers with the token ``tok``."""
    registry = SwarmRegistry("alpha", HERE, str(folder / "alpha.json"))
    for peer in peers:
        await registry.register_swarm(peer.name, peer.url, "tok")
    router = InterswarmRouter(registry, "alpha")
    await router.start()
    try:
        yield router
    finally:
        await router.stop()
        await registry.aclose()


@dataclass
class WaitingMail:
    """A store that holds nothing but mail for peers, and what settles it.

    Attributes:
        rows: The mail by number.
        task: What is stored of every task.
        settled: What came of attempts, and when (monotonic).
        looks: How often somebody asked for what is due.
        broken: Fail whatever is asked.
    """

    rows: dict[int, OutboxRow] = field(default_factory=dict)
    task: TaskRow | None = None
    settled: list[tuple[OutboxRow, DeliveryOutcome, float]] = field(default_factory=list)
    looks: int = 0
    broken: bool = False
    _added: int = 0

    def add(self, peer: str, task: str = "trip", **fields: Any) -> OutboxRow:
        """Let mail wait."""
        self._added += 1
        made = wrapper(f"supervisor@{peer}", task)
        row = OutboxRow(
            task,
            peer,
            made["message_id"],
            "guide",
            "request",
            made["payload"]["request_id"],  # type: ignore[typeddict-item]
            json.dumps(made),
            CLOCK.now(),
            id=self._added,
        )
        self.rows[row.id] = row._replace(**fields)
        return self.rows[row.id]

    async def settle(self, owner: Owner, row: OutboxRow, outcome: DeliveryOutcome) -> None:
        """Do what a runtime does."""
        self._check()
        assert owner == INES
        self.settled.append((row, outcome, asyncio.get_running_loop().time()))
        if outcome.state == "delivered":
            del self.rows[row.id]
        else:
            state = "waiting" if outcome.state == "delayed" else "dead"
            self.rows[row.id] = row._replace(state=state, told=True)  # type: ignore[arg-type]

    def outcomes(self) -> list[str]:
        """Return what came of attempts, in order."""
        return [outcome.state for _, outcome, _ in self.settled]

    def _check(self) -> None:
        if self.broken:
            raise StoreError("the disk is full")

    def _first(self) -> list[OutboxRow]:
        found: dict[tuple[str, str], OutboxRow] = {}
        for number in sorted(self.rows):
            row = self.rows[number]
            if row.state == "waiting":
                found.setdefault((row.task_id, row.peer), row)
        return list(found.values())

    async def due_outbox(
        self,
        swarm: str,
        now: str,
        limit: int,
        *,
        owner: Owner | None = None,
        without: Collection[str] = (),
        untold: Collection[str] = (),
    ) -> list[tuple[Owner, OutboxRow]]:
        self._check()
        self.looks += 1
        due = (
            row
            for row in self._first()
            if row.next_at <= now
            and row.peer not in without
            and not (row.told and row.peer in untold)
        )
        return [(INES, row) for row in due][:limit]

    async def next_outbox(self, swarm: str, after: str | None = None) -> str | None:
        self._check()
        times = (row.next_at for row in self._first())
        return min((time for time in times if after is None or time > after), default=None)

    async def unanswered_outbox(
        self,
        swarm: str,
        before: str,
        after: int,
        limit: int,
        *,
        owner: Owner | None = None,
    ) -> list[tuple[Owner, OutboxRow]]:
        self._check()
        rows = (self.rows[number] for number in sorted(self.rows) if number > after)
        old = (row for row in rows if row.state == "delivered" and row.created_at < before)
        return [(INES, row) for row in old][:limit]

    async def load_task(self, owner: Owner, task_id: str) -> TaskRow | None:
        self._check()
        return self.task

    async def change_outbox(self, changes: Sequence[OutboxChange]) -> None:
        self._check()
        for change in changes:
            self.rows[change.id] = self.rows[change.id]._replace(**change._asdict())

    async def task_outbox(self, owner: Owner, task_id: str) -> list[OutboxRow]:
        raise NotImplementedError

    async def list_outbox(
        self, swarm: str, *, peer: str | None = None, after: int = 0, limit: int = 100
    ) -> list[tuple[Owner, OutboxRow]]:
        self._check()
        return [(INES, self.rows[one]) for one in sorted(self.rows) if one > after][:limit]

    async def retry_outbox(self, swarm: str, number: int) -> bool:
        now = CLOCK.now()
        self.rows[number] = self.rows[number]._replace(
            state="waiting", attempts=0, next_at="", last_error="", told=False, created_at=now
        )
        return True

    async def find_inbox(self, swarm: str, peer: str, message_id: str) -> str | None:
        raise NotImplementedError

    async def drop_aged(self, table: str, before: str, limit: int) -> int:
        raise NotImplementedError
