"""A model of the mailbox: priority, order, exclusivity, nothing lost and nothing doubled."""

import asyncio
import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mail.clock import SystemClock
from mail.core.compose import Composer
from mail.core.message import create_agent_address
from mail.core.runtime import RuntimeSettings
from mail.core.runtime.mailbox import Hold, LaneKey, Mailbox, QueuedMessage
from mail.core.runtime.turn import Control, ControlKind
from mail.core.tasks import TaskState
from mail.core.usage import Usage
from mail.db.memory import MemoryStore
from mail.db.records import Delivery
from mail.errors import MAILError
from mail.testing import tool_calls
from tests.support.swarm import runtime_of, supervisor, user_message, worker

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


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["post", "interrupt", "cancel", "yield", "answer", "answer", "delegate"]),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=120, deadline=None)
@given(steps=STEPS, budget=st.none() | st.integers(1, 50))
def test_random_interleavings_lose_and_double_nothing(
    steps: list[tuple[str, int]], budget: int | None
) -> None:
    asyncio.run(_interleave(steps, budget))


async def _interleave(steps: list[tuple[str, int]], budget: int | None) -> None:  # noqa: C901, PLR0915 - one play
    """Drive a runtime by hand: agents stand still until a step lets one of their calls return."""
    store = MemoryStore()
    gates: list[asyncio.Future[str]] = []
    running: set[tuple[str, str]] = set()
    consumed: list[str] = []
    used: dict[str, int] = {}

    def gated(name: str):  # type: ignore[no-untyped-def]
        async def agent(messages, choice):  # type: ignore[no-untyped-def]
            from mail.core.call_context import current_call

            task_id = current_call().task_id
            lane = (task_id, name)
            assert budget is None or used.get(task_id, 0) < budget, "a call without a budget"
            assert lane not in running, "two turns of one agent in one task"
            running.add(lane)
            gate: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            gates.append(gate)
            try:
                decision = await gate
                current_call().report("m", Usage(total_tokens=10))
                used[task_id] = used.get(task_id, 0) + 10
            finally:
                running.discard(lane)
            consumed.append(current_call().step)
            if isinstance(choice, dict) or (decision == "answer" and name == "supervisor"):
                return None, tool_calls(("task_complete", {"finish_message": "ok"}))
            tool = "send_request" if decision == "delegate" else "send_response"
            other = "worker" if name == "supervisor" else "supervisor"
            return None, tool_calls((tool, {"target": other, "subject": "s", "body": "b"}))

        return agent

    runtime = runtime_of(
        {"supervisor": supervisor(gated("supervisor")), "worker": worker(gated("worker"))},
        store=store,
        settings=RuntimeSettings(task_token_limit=budget),
    )
    posted: list[str] = []
    for action, number in steps:
        task_id = f"task-{number}"
        if action in ("post", "interrupt"):
            kind = "interrupt" if action == "interrupt" else "request"
            message = user_message("hi", task_id, kind=kind)  # type: ignore[arg-type]
            await runtime.submit(message)
            posted.append(message["id"])
            await runtime.start()
        elif action == "cancel":
            try:
                await runtime.cancel_task(task_id)
            except MAILError:
                assert task_id not in {t.task_id for t in await runtime.read_tasks()}
        elif action in ("answer", "delegate"):
            open_gates = [gate for gate in gates if not gate.done()]
            if open_gates:
                open_gates[number % len(open_gates)].set_result(action)
        for _ in range(12):
            await asyncio.sleep(0)
    await _check(runtime, store, posted, consumed)
    for task in await runtime.read_tasks():
        assert task.total_usage.total_tokens == used.get(task.task_id, 0)
    for gate in gates:
        gate.cancel()
    await runtime.shutdown(grace=0)


async def _check(runtime, store, posted, consumed) -> None:  # type: ignore[no-untyped-def]
    """Every posted message is in the log once, and in the store as waiting or settled."""
    owner = runtime._context.owner
    assert len(consumed) == len(set(consumed)), "a turn was committed twice"
    logged: list[str] = []
    for task in await runtime.read_tasks():
        events = await store.events(owner, task.task_id)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        logged += [message["id"] for message in task.get_messages()]
        mail = await store.all_mail(owner, task.task_id)
        assert len({row.seq for row in mail}) == len(mail)
        waiting = await store.waiting_mail(owner, task.task_id)
        if task.status is TaskState.CANCELLED:
            assert not waiting
        live = runtime._context.active_tasks.get(task.task_id)
        if live is not None and task.status is TaskState.RUNNING:
            at_work = len(live.turns)
            assert len(runtime._context.mailbox.queued_messages(task.task_id)) + at_work == len(
                waiting
            )
            assert at_work or not live.exhausted, "nobody will end this task"
    assert len(logged) == len(set(logged))
    assert set(posted) <= set(logged)
