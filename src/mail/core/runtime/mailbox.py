"""The mailbox: waiting mail in lanes, one lane per (task, agent), claimed one turn at a time.

A lane's own order is: a turn that was begun, the request to finish, interrupts, by tier, by
number. Among lanes the one whose first message has the lowest (tier, number) goes first, so no
task can starve another beyond the tiers. A lane is not claimable while its turn runs, while it is
blocked by an open breakpoint, or while its task is held. What carries out an answer about a held
call comes first, and passes blocks and holds: only a running turn of its lane is in its way.

In manual mode mail without an instruction of the system is *buffered*: it waits behind everything
else, in the order in which it came, until a step takes all of it at once.

Pure and synchronous: no clock, no store, no asyncio.
"""

import heapq
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from mail.core.envelope import Envelope
from mail.core.runtime.turn import Control, ControlKind
from mail.db.records import Delivery

_BUFFERED = 4  # behind every rank of `QueuedMessage.place`
_LARGE = 64 * 1024


class Hold(IntEnum):
    """The firmness of a hold on a task.

    Begun turns, begun steps and the request to finish pass a SOFT hold, begun turns a BEGUN one,
    nothing a FIRM.
    """

    SOFT = 0
    BEGUN = 1
    FIRM = 2


class LaneKey(NamedTuple):
    """The key of a lane, in which mail waits: an agent within a task."""

    task_id: str
    agent: str


@dataclass(slots=True, eq=False)
class QueuedMessage:
    """A delivery in the mailbox; ``seq`` is the number that the store gave it.

    ``envelope`` and ``control`` are the delivery's payload and instruction, read. ``recovered``
    marks mail that a crashed process may have been working on, ``claimed`` that this process has
    counted its attempt on it, ``filed`` that its turn has a journal in the store;
    ``delays`` counts how often the provider asked to come back later. ``lane`` is where it waits.
    """

    delivery: Delivery
    envelope: Envelope
    control: Control | None = None
    recovered: bool = False
    claimed: bool = False
    filed: bool = False
    delays: int = 0
    seq: int = 0
    lane: LaneKey = field(init=False)

    def __post_init__(self) -> None:
        self.lane = LaneKey(self.delivery.task_id, self.delivery.recipient)

    @classmethod
    def read(
        cls, delivery: Delivery, *, recovered: bool = False, filed: bool = False
    ) -> "QueuedMessage":
        """Make a message of what the store holds."""
        return cls(
            delivery,
            Envelope.from_json(delivery.payload),
            Control.from_json(delivery.control),
            recovered,
            filed=filed,
            seq=delivery.seq,
        )

    @property
    def large(self) -> int:
        """Return the length of a long message, and 0 for others."""
        length = len(self.delivery.payload)
        return length if length > _LARGE else 0

    @property
    def finish(self) -> bool:
        """Tell whether this is the system's request to finish."""
        return self.control is not None and self.control.kind is ControlKind.FINISH

    @property
    def of_step(self) -> bool:
        """Tell whether it belongs to a manual step whose caller waits."""
        control = self.control
        return bool(control and control.step and control.kind is not ControlKind.RESUME)

    @property
    def step_ref(self) -> str:
        """The id of the manual step that it belongs to, or no text."""
        return self.control.step.ref if self.control and self.control.step else ""

    @property
    def goes_on(self) -> bool:
        """Tell whether it continues a manual step that has begun; no other step comes between."""
        control = self.control
        return bool(control and control.step and control.kind is not ControlKind.STEP)

    @property
    def decided(self) -> bool:
        """Tell whether it carries out what somebody answered about a held call."""
        return self.control is not None and self.control.decided

    @property
    def passive(self) -> bool:
        """Tell whether manual mode buffers it: nothing of the system's, and no begun turn."""
        return self.control is None and not self.filed

    @property
    def place(self) -> tuple[int, int, int]:
        """The message's place in its lane."""
        rank = 2 if self.delivery.interrupt else 3
        if self.control is not None:
            if self.control.decided:
                return -1, self.delivery.tier, self.seq
            if self.finish or self.goes_on:
                rank = 1
        return 0 if self.filed else rank, self.delivery.tier, self.seq


@dataclass(slots=True, eq=False)
class _Lane:
    key: LaneKey
    queued_messages: list[tuple[tuple[int, int, int], QueuedMessage]] = field(default_factory=list)
    busy: bool = False
    blocked: bool = False
    worked_on: int = 0  # see `QueuedMessage.large`

    @property
    def head(self) -> QueuedMessage | None:
        return self.queued_messages[0][1] if self.queued_messages else None

    @property
    def decided(self) -> bool:
        """Tell whether it begins with what carries out an answer."""
        return bool(self.queued_messages) and self.queued_messages[0][1].decided


class Mailbox:
    """Waiting mail of one owner.

    Attributes:
        large: The size of long messages that wait or are worked on, in characters.
    """

    def __init__(self) -> None:
        self.large = 0
        self._lanes: dict[LaneKey, _Lane] = {}
        self._tasks: dict[str, dict[str, _Lane]] = {}
        self._held: dict[str, Hold] = {}
        self._frozen: dict[str, set[LaneKey]] = {}
        self._seqs: set[int] = set()
        self._ready: list[tuple[int, int, LaneKey]] = []
        self._manual = False

    def __len__(self) -> int:
        return len(self._seqs)

    def waiting(self, task_id: str) -> bool:
        """Tell whether messages of a task wait."""
        return any(lane.queued_messages for lane in self._tasks.get(task_id, {}).values())

    @property
    def offers(self) -> bool:
        """Tell whether it is worth while to try `claim`."""
        return bool(self._ready)

    @property
    def ready(self) -> bool:
        """Tell whether anything could be claimed."""
        return any(self._claimable(lane) for lane in self._lanes.values())

    def set_manual(self, manual: bool) -> None:
        """Switch manual mode on or off for all lanes."""
        self._manual = manual
        for lane in self._lanes.values():
            lane.queued_messages = [
                (self._place(queued), queued) for _, queued in lane.queued_messages
            ]
            heapq.heapify(lane.queued_messages)
            self._offer(lane)

    def take_buffer(self, key: LaneKey) -> list[QueuedMessage]:
        """Take an agent's buffered mail out, in the order in which they came."""
        lane = self._lanes.get(key)
        buffered = [queued for _, queued in lane.queued_messages if queued.passive] if lane else []
        self._take(key, buffered)
        return sorted(buffered, key=lambda queued: queued.seq)

    def remove(self, queued: QueuedMessage) -> bool:
        """Take one waiting mail out; False when it does not wait."""
        if queued.seq not in self._seqs:
            return False
        self._take(queued.lane, [queued])
        return True

    def _take(self, key: LaneKey, queued_messages: list[QueuedMessage]) -> None:
        if not queued_messages:
            return
        seqs = {queued.seq for queued in queued_messages}
        self.large -= sum([queued.large for queued in queued_messages])
        lane = self._lanes[key]
        lane.queued_messages = [pair for pair in lane.queued_messages if pair[1].seq not in seqs]
        heapq.heapify(lane.queued_messages)
        self._seqs -= seqs
        self._offer_or_forget(lane)

    def workable(self, task_id: str) -> bool:
        """Tell whether a task has mail to work on in a lane that no open breakpoint blocks."""
        for lane in self._tasks.get(task_id, {}).values():
            if lane.decided:
                return True
            waits = lane.queued_messages and not lane.blocked
            if waits and not (self._manual and lane.queued_messages[0][1].passive):
                return True
        return False

    def decided(self, task_id: str) -> list[QueuedMessage]:
        """Return what waits of a task to carry out answers about held calls."""
        return [queued for queued in self.queued_messages(task_id) if queued.decided]

    def presses(self, key: LaneKey) -> bool:
        """Tell whether an interrupt or the request to finish waits in a lane."""
        lane = self._lanes.get(key)
        waiting = [queued for _, queued in lane.queued_messages] if lane else []
        return any(queued.delivery.interrupt or queued.finish for queued in waiting)

    def begun(self, task_id: str) -> bool:
        """Tell whether a begun turn waits that the task's hold lets pass."""
        lanes = self._tasks.get(task_id, {}).values()
        if any(lane.decided for lane in lanes):
            return True
        heads = [lane.head for lane in lanes if not lane.blocked]
        return self._held.get(task_id) is not Hold.FIRM and any(h and h.filed for h in heads)

    def queued_messages(self, task_id: str) -> list[QueuedMessage]:
        """Return a task's waiting mail."""
        lanes = self._tasks.get(task_id, {}).values()
        return [queued for lane in lanes for _, queued in lane.queued_messages]

    def put(self, queued: QueuedMessage) -> None:
        """Add a message to its lane, unless it waits there already."""
        if queued.seq in self._seqs:
            return
        self._seqs.add(queued.seq)
        self.large += queued.large
        lane = self._lane(queued.lane)
        heapq.heappush(lane.queued_messages, (self._place(queued), queued))
        if lane.queued_messages[0][1] is queued:
            self._offer(lane)

    def claim(self) -> QueuedMessage | None:
        """Take the next message and make its lane busy; None when nothing can be claimed."""
        while self._ready:
            _, seq, key = heapq.heappop(self._ready)
            lane = self._lanes.get(key)
            if lane is None or not self._claimable(lane):
                continue
            frozen = self._frozen.get(key.task_id)
            if frozen is not None:
                frozen.add(key)
                continue
            head = lane.queued_messages[0][1]
            if head.seq != seq:
                continue  # an offer made before the lane changed
            heapq.heappop(lane.queued_messages)
            lane.busy, lane.worked_on = True, head.large
            self._seqs.discard(seq)
            return head
        return None

    def release(self, key: LaneKey) -> None:
        """End the turn of a lane."""
        lane = self._lanes.get(key)
        if lane is not None:
            self.large -= lane.worked_on
            lane.busy, lane.worked_on = False, 0
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

    def freeze(self, task_id: str) -> None:
        """Let nothing of a task be claimed until `thaw`: what becomes of it is being stored."""
        self._frozen[task_id] = set()

    def thaw(self, task_id: str) -> None:
        """Take a `freeze` back."""
        for key in self._frozen.pop(task_id, ()):
            if lane := self._lanes.get(key):
                self._offer(lane)

    def drop(self, task_id: str) -> list[QueuedMessage]:
        """Take all waiting mail of a task out, in the order of their places."""
        dropped: list[tuple[tuple[int, int, int], QueuedMessage]] = []
        for lane in list(self._tasks.get(task_id, {}).values()):
            dropped.extend(lane.queued_messages)
            lane.queued_messages = []
            lane.blocked = False
            self._offer_or_forget(lane)
        self._held.pop(task_id, None)
        self._seqs.difference_update(queued.seq for _, queued in dropped)
        self.large -= sum([queued.large for _, queued in dropped])
        return [queued for _, queued in sorted(dropped, key=lambda pair: pair[0])]

    def _place(self, queued: QueuedMessage) -> tuple[int, int, int]:
        return (_BUFFERED, 0, queued.seq) if self._manual and queued.passive else queued.place

    def _claimable(self, lane: _Lane) -> bool:
        if lane.busy or not lane.queued_messages:
            return False
        head = lane.queued_messages[0][1]
        if head.control is not None and head.control.decided:
            return True
        if lane.blocked or (self._manual and head.passive):
            return False
        level = self._held.get(lane.key.task_id)
        if level is None or (level is Hold.SOFT and (head.finish or head.goes_on)):
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
            queued = lane.queued_messages[0][1]
            heapq.heappush(self._ready, (queued.delivery.tier, queued.seq, lane.key))

    def _offer_or_forget(self, lane: _Lane) -> None:
        if lane.queued_messages or lane.busy or lane.blocked:
            self._offer(lane)
            return
        self._lanes.pop(lane.key, None)
        siblings = self._tasks.get(lane.key.task_id)
        if siblings is not None:
            siblings.pop(lane.key.agent, None)
            if not siblings:
                del self._tasks[lane.key.task_id]
