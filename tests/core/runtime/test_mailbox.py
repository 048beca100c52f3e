"""A model of the mailbox: priority, order, exclusivity, nothing lost and nothing doubled."""

import itertools

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mail.clock import SystemClock
from mail.core.compose import Composer
from mail.core.message import create_agent_address
from mail.core.runtime.mailbox import Hold, LaneKey, Mailbox, QueuedMessage
from mail.core.runtime.turn import Control, ControlKind
from mail.db.records import Delivery

TASKS = st.sampled_from(["t1", "t2", "t3"])
AGENTS = st.sampled_from(["a", "b"])
COMPOSER = Composer("swarm", SystemClock())
ENVELOPE = COMPOSER.message(
    "request", "t1", create_agent_address("x"), [create_agent_address("a")], "s", "b"
)
FINISH = Control(ControlKind.FINISH)
LONG = "x" * 65_537


class MailboxModel(RuleBasedStateMachine):
    """The mailbox against a plain list that is searched anew for every claim."""

    def __init__(self) -> None:
        super().__init__()
        self.mailbox = Mailbox()
        self.seq = itertools.count(1)
        self.waiting: list[QueuedMessage] = []
        self.busy: dict[LaneKey, QueuedMessage] = {}
        self.blocked: set[LaneKey] = set()
        self.held: dict[str, Hold] = {}

    @rule(task=TASKS, agent=AGENTS, tier=st.integers(1, 5), kind=st.sampled_from("nnnifb"))
    def put(self, task: str, agent: str, tier: int, kind: str) -> None:
        delivery = Delivery(
            task_id=task,
            recipient=agent,
            tier=tier,
            interrupt=kind == "i",
            payload=LONG if tier > 3 else "",
        )
        control = FINISH if kind == "f" else None
        begun = kind == "b"
        letter = QueuedMessage(delivery, ENVELOPE, control, filed=begun, seq=next(self.seq))
        self.mailbox.put(letter)
        self.waiting.append(letter)

    @rule()
    def claim(self) -> None:
        expected = self.next_letter()
        claimed = self.mailbox.claim()
        assert claimed is expected
        if claimed is not None:
            self.waiting.remove(claimed)
            assert lane_of(claimed) not in self.busy
            self.busy[lane_of(claimed)] = claimed

    @precondition(lambda self: self.busy)
    @rule(data=st.data(), returned=st.booleans())
    def release(self, data: st.DataObject, returned: bool) -> None:
        lane = data.draw(st.sampled_from(sorted(self.busy)))
        letter = self.busy.pop(lane)
        if returned:  # an interrupted turn: its letter goes back to its old place
            self.mailbox.put(letter)
            self.waiting.append(letter)
        self.mailbox.release(lane)

    @rule(task=TASKS, level=st.sampled_from(Hold))
    def hold(self, task: str, level: Hold) -> None:
        self.mailbox.hold(task, level)
        self.held[task] = max(level, self.held.get(task, level))

    @rule(task=TASKS)
    def unhold(self, task: str) -> None:
        self.mailbox.unhold(task)
        self.held.pop(task, None)

    @rule(task=TASKS, agent=AGENTS)
    def block(self, task: str, agent: str) -> None:
        self.mailbox.block(LaneKey(task, agent))
        self.blocked.add(LaneKey(task, agent))

    @rule(task=TASKS, agent=AGENTS)
    def unblock(self, task: str, agent: str) -> None:
        self.mailbox.unblock(LaneKey(task, agent))
        self.blocked.discard(LaneKey(task, agent))

    @rule(task=TASKS)
    def drop(self, task: str) -> None:
        dropped = self.mailbox.drop(task)
        mine = [letter for letter in self.waiting if letter.delivery.task_id == task]
        assert dropped == sorted(mine, key=lambda letter: letter.place)
        self.waiting = [letter for letter in self.waiting if letter not in mine]
        self.held.pop(task, None)
        self.blocked = {lane for lane in self.blocked if lane.task_id != task}

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.mailbox) == len(self.waiting)
        long = [each for each in (*self.waiting, *self.busy.values()) if each.delivery.payload]
        assert self.mailbox.large == len(long) * len(LONG)
        for task in ("t1", "t2", "t3"):
            mine = [letter for letter in self.waiting if letter.delivery.task_id == task]
            assert len(self.mailbox.queued_messages(task)) == len(mine)
            assert self.mailbox.workable(task) == any(
                lane_of(letter) not in self.blocked for letter in mine
            )
            assert {*map(id, self.mailbox.queued_messages(task))} == {*map(id, mine)}
            heads = [
                head
                for lane, head in self.heads().items()
                if lane.task_id == task and lane not in self.blocked
            ]
            begun = any(head.filed for head in heads) and self.held.get(task) is not Hold.FIRM
            assert self.mailbox.begun(task) == begun

    def heads(self) -> dict[LaneKey, QueuedMessage]:
        lanes: dict[LaneKey, list[QueuedMessage]] = {}
        for letter in self.waiting:
            lanes.setdefault(lane_of(letter), []).append(letter)
        return {lane: min(mail, key=lambda letter: letter.place) for lane, mail in lanes.items()}

    def next_letter(self) -> QueuedMessage | None:
        free = [
            head
            for lane, head in self.heads().items()
            if lane not in self.busy
            and lane not in self.blocked
            and self.passes(head, self.held.get(lane.task_id))
        ]
        return min(free, key=lambda head: (head.delivery.tier, head.seq), default=None)

    def passes(self, head: QueuedMessage, level: Hold | None) -> bool:
        if level is None:
            return True
        return (head.filed and level < Hold.FIRM) or (head.finish and level < Hold.BEGUN)


def lane_of(letter: QueuedMessage) -> LaneKey:
    return LaneKey(letter.delivery.task_id, letter.delivery.recipient)


MailboxModel.TestCase.settings = settings(
    max_examples=300, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMailbox = MailboxModel.TestCase
