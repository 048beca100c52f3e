"""The mailbox: waiting mail in lanes, one lane per (task, agent), claimed one turn at a time.

A lane's own order is: a turn that was begun, the request to finish, interrupts, by tier, by
number. Among lanes the one whose first letter has the lowest (tier, number) goes first, so no
task can starve another beyond the tiers. A lane is not claimable while its turn runs, while it is
blocked by an open breakpoint, or while its task is held.

Pure and synchronous: no clock, no store, no asyncio.
"""

import heapq
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from mail.core.envelope import Envelope
from mail.core.runtime.turn import Control, ControlKind
from mail.db.base import Delivery

__all__ = ["Hold", "LaneKey", "Letter", "Mailbox"]


class Hold(IntEnum):
    """How firmly a task is held.

    Begun turns and the request to finish pass a SOFT hold, begun turns a BEGUN one, nothing a FIRM.
    """

    SOFT = 0
    BEGUN = 1
    FIRM = 2


class LaneKey(NamedTuple):
    """Where mail waits: an agent within a task."""

    task_id: str
    agent: str


@dataclass(slots=True, eq=False)
class Letter:
    """A delivery in the mailbox; ``seq`` is the number that the store gave it.

    ``envelope`` and ``control`` are the delivery's payload and instruction, read. ``recovered``
    marks mail that a crashed process may have been working on, ``claimed`` that this process has
    counted its attempt on it, ``filed`` that its turn has a journal in the store;
    ``delays`` counts how often the provider asked to come back later.
    """

    delivery: Delivery
    envelope: Envelope
    control: Control | None = None
    recovered: bool = False
    claimed: bool = False
    filed: bool = False
    delays: int = 0
    seq: int = 0

    @classmethod
    def read(cls, delivery: Delivery, *, recovered: bool = False, filed: bool = False) -> "Letter":
        """Make a letter of what the store holds."""
        return cls(
            delivery,
            Envelope.from_json(delivery.payload),
            Control.from_json(delivery.control),
            recovered,
            filed=filed,
            seq=delivery.seq,
        )

    @property
    def finish(self) -> bool:
        """Tell whether this is the system's request to finish."""
        return self.control is not None and self.control.kind is ControlKind.FINISH

    @property
    def personal(self) -> bool:
        """Tell whether a user or administrator wrote it."""
        return self.envelope.sender["address_type"] in ("user", "admin")

    @property
    def place(self) -> tuple[int, int, int]:
        """The letter's place in its lane."""
        rank = 1 if self.finish else 2 if self.delivery.interrupt else 3
        return 0 if self.filed else rank, self.delivery.tier, self.seq


@dataclass(slots=True, eq=False)
class _Lane:
    key: LaneKey
    letters: list[tuple[tuple[int, int, int], Letter]] = field(default_factory=list)
    busy: bool = False
    blocked: bool = False

    @property
    def head(self) -> Letter | None:
        return self.letters[0][1] if self.letters else None


class Mailbox:
    """Waiting mail of one owner."""

    def __init__(self) -> None:
        self._lanes: dict[LaneKey, _Lane] = {}
        self._tasks: dict[str, dict[str, _Lane]] = {}
        self._held: dict[str, Hold] = {}
        self._seqs: set[int] = set()
        self._ready: list[tuple[int, int, _Lane]] = []
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._seqs)

    def waiting(self, task_id: str) -> int:
        """Return how many letters of a task wait."""
        return self._counts.get(task_id, 0)

    def workable(self, task_id: str) -> bool:
        """Tell whether a task has mail in a lane that no open breakpoint blocks."""
        return any(
            lane.letters and not lane.blocked for lane in self._tasks.get(task_id, {}).values()
        )

    def holds_finish(self, task_id: str) -> bool:
        """Tell whether a request to finish waits in a task's lanes."""
        return any(letter.finish for letter in self.letters(task_id))

    def begun(self, task_id: str) -> bool:
        """Tell whether a begun turn waits that the task's hold lets pass."""
        lanes = self._tasks.get(task_id, {}).values()
        heads = [lane.head for lane in lanes if not lane.blocked]
        return self._held.get(task_id) is not Hold.FIRM and any(h and h.filed for h in heads)

    def letters(self, task_id: str) -> list[Letter]:
        """Return a task's waiting letters."""
        lanes = self._tasks.get(task_id, {}).values()
        return [letter for lane in lanes for _, letter in lane.letters]

    def put(self, letter: Letter) -> None:
        """Add a letter to its lane, unless it waits there already."""
        if letter.seq in self._seqs:
            return
        self._seqs.add(letter.seq)
        delivery = letter.delivery
        lane = self._lane(LaneKey(delivery.task_id, delivery.recipient))
        heapq.heappush(lane.letters, (letter.place, letter))
        self._counts[delivery.task_id] = self._counts.get(delivery.task_id, 0) + 1
        if lane.letters[0][1] is letter:
            self._offer(lane)

    def claim(self) -> Letter | None:
        """Take the next letter and make its lane busy; None when nothing can be claimed."""
        while self._ready:
            tier, seq, lane = heapq.heappop(self._ready)
            head = lane.head
            if head is None or (head.delivery.tier, head.seq) != (tier, seq):
                continue  # an offer made before the lane changed
            if not self._claimable(lane):
                continue
            heapq.heappop(lane.letters)
            lane.busy = True
            self._seqs.discard(seq)
            self._counts[lane.key.task_id] -= 1
            return head
        return None

    def release(self, key: LaneKey) -> None:
        """End the turn of a lane."""
        lane = self._lanes.get(key)
        if lane is not None:
            lane.busy = False
            self._offer_or_forget(lane)

    def block(self, key: LaneKey) -> None:
        """Keep a lane from being claimed until `unblock`."""
        self._lane(key).blocked = True

    def unblock(self, key: LaneKey) -> None:
        """Take a `block` back."""
        lane = self._lanes.get(key)
        if lane is not None:
            lane.blocked = False
            self._offer_or_forget(lane)

    def hold(self, task_id: str, level: Hold = Hold.SOFT) -> None:
        """Keep a task from being claimed, but for what passes the hold; it only gets firmer."""
        self._held[task_id] = max(level, self._held.get(task_id, level))

    def held(self, task_id: str) -> bool:
        """Tell whether a task is held."""
        return task_id in self._held

    def unhold(self, task_id: str) -> None:
        """Take a `hold` back."""
        if self._held.pop(task_id, None) is not None:
            for lane in self._tasks.get(task_id, {}).values():
                self._offer(lane)

    def drop(self, task_id: str) -> list[Letter]:
        """Take all waiting letters of a task out, in the order of their places."""
        dropped: list[tuple[tuple[int, int, int], Letter]] = []
        for lane in list(self._tasks.get(task_id, {}).values()):
            dropped.extend(lane.letters)
            lane.letters = []
            lane.blocked = False
            self._offer_or_forget(lane)
        self._held.pop(task_id, None)
        self._counts.pop(task_id, None)
        self._seqs.difference_update(letter.seq for _, letter in dropped)
        return [letter for _, letter in sorted(dropped, key=lambda pair: pair[0])]

    def _claimable(self, lane: _Lane) -> bool:
        head = lane.head
        if head is None or lane.busy or lane.blocked:
            return False
        level = self._held.get(lane.key.task_id)
        if level is None or (level is Hold.SOFT and head.finish):
            return True
        return head.filed and level is not Hold.FIRM

    def _lane(self, key: LaneKey) -> _Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
            self._tasks.setdefault(key.task_id, {})[key.agent] = lane
        return lane

    def _offer(self, lane: _Lane) -> None:
        if self._claimable(lane):
            letter = lane.letters[0][1]
            heapq.heappush(self._ready, (letter.delivery.tier, letter.seq, lane))

    def _offer_or_forget(self, lane: _Lane) -> None:
        if lane.letters or lane.busy or lane.blocked:
            self._offer(lane)
            return
        self._lanes.pop(lane.key, None)
        siblings = self._tasks.get(lane.key.task_id)
        if siblings is not None:
            siblings.pop(lane.key.agent, None)
            if not siblings:
                del self._tasks[lane.key.task_id]
                if not self._counts.get(lane.key.task_id):
                    self._counts.pop(lane.key.task_id, None)
