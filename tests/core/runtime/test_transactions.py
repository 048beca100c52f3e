"""What a task's commit changes is in memory when the store has it, and not before.

Each door is tried with a store that refuses its commit: afterwards, and while the commit is under
way, the task in memory is what it was before.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mail.core.actions import ActionCore
from mail.core.agents import AgentCore
from mail.core.approvals import Answer, Answerer, Approval
from mail.core.interswarm import DeliveryOutcome, PeerControl
from mail.core.runtime import MAILRuntime, RunRequest, RuntimeSettings
from mail.core.teams import Teams
from mail.db.commit import Commit, TurnCommit
from mail.db.desk import LetterFilter
from mail.db.memory import MemoryStore
from mail.errors import MAILError, StoreConflict, StoreError, UnknownTask
from mail.testing import tool_calls
from tests.core.runtime.test_federation import HARBOUR, echo, leader
from tests.core.runtime.test_federation_faults import letter as peer_mail
from tests.core.runtime.test_letters import reply
from tests.support.federation import FAR, Network, question, until
from tests.support.stores import HookedStore
from tests.support.swarm import SWARM, last_body, runtime_of, supervisor, user_message, worker

ALICE = Answerer("user", "alice", owner=True)
TEAM = {"id": "alpha", "lead": "supervisor", "members": ["worker"]}
Door = Callable[["Stage"], Awaitable[object]]
Calls = tuple[tuple[str, dict[str, Any]], ...]


def send(tool: str, target: str, body: str) -> tuple[str, dict[str, Any]]:
    return tool, {"target": target, "subject": "s", "body": body}


ERRORS = {"fails": StoreError("it is full"), "conflict": StoreConflict("no")}


def _tried(*names: str) -> list[Any]:
    """Return each name with each error."""
    return [
        pytest.param(name, error, id=f"{name}-{kind}")
        for name in names
        for kind, error in ERRORS.items()
    ]


SAID: dict[str, Calls] = {
    "ask": (send("send_request", "worker", "park"),),
    "finish": (("task_complete", {"finish_message": "done"}),),
    "review": (("review", {}),),
    "guarded": (("guarded", {}),),
    "write": (send("send_request", "editor", "yes?"),),
    "interrupt": (send("send_interrupt", "worker", "stop that"),),
    "wait": (
        (
            "teammate_message",
            {"teamId": "alpha", "to": "worker", "message": "park", "waitForReply": True},
        ),
    ),
    "reply": (send("send_response", "supervisor", "here"),),
}


class Stage:
    """A runtime whose agents do what their mail says, and ``park`` before that at their gates.

    ``refuses`` is what the store says to the next commit that `matches`; ``seen`` is the memory of
    the task as it was while that was under way.
    """

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.parked: set[str] = set()
        self.store = HookedStore(MemoryStore(), before=self._before)
        self.refuses: Exception | None = None
        self.matches: Callable[[Commit], bool] = lambda post: True
        self.seen: list[dict[str, Any] | None] = []
        lead = supervisor(self._agent("supervisor"), ("worker", "editor"))
        lead.actions = {"review": ActionCore(function=None, name="review")}
        lead.actions["guarded"] = ActionCore(
            function=lambda arguments: "ok", name="guarded", approval=Approval()
        )
        self.runtime: MAILRuntime = runtime_of(
            {"supervisor": lead, "worker": worker(self._agent("worker"))},
            store=self.store,
            breakpoint_tools=["review"],
            participants=["editor"],
            teams=Teams.of([TEAM], enabled=True),
            settings=RuntimeSettings(max_attempts=1),
        )

    def _agent(self, name: str) -> Any:
        async def agent(messages: list[dict[str, Any]], choice: object) -> Any:
            text = last_body(messages)
            body = text.split("<body>")[1].split("</body>")[0] if "<body>" in text else ""
            if "park" in body:
                self.parked.add(name)
                await self.gates[name].wait()
            said = SAID.get(body.removeprefix("park").strip(), (("await_message", {}),))
            return None, tool_calls(*said, prefix=name)

        return agent

    async def _before(self, post: Commit) -> None:
        if self.refuses is not None and self.matches(post):
            error, self.refuses = self.refuses, None
            self.seen.append(memory(self.runtime))
            if isinstance(post, TurnCommit) and not isinstance(error, StoreConflict):
                self.runtime._context.status.draining = True  # else it would be tried again
            raise error

    async def begins(self, body: str, *, parks: str = "") -> None:
        """Open a task, and wait until an agent parks in it, or until nothing goes on."""
        await self.runtime.start()
        await self.runtime.submit(user_message(body))
        if parks:
            await until(lambda: parks in self.parked)
        else:
            await self.runtime.await_queue_empty()

    async def keeps(self) -> None:
        """Have an agent at work in the task, so that it stays in memory."""
        await self.runtime.submit(user_message("park", to="worker"))
        await until(lambda: "worker" in self.parked)


def memory(runtime: MAILRuntime, task_id: str = "task-1") -> dict[str, Any] | None:
    """Return what is in memory of a task, but for its turns; None if that is nothing."""
    task, box = runtime._context.active_tasks.get(task_id), runtime._context.mailbox
    if task is None:
        return None
    lanes = {key.agent: lane for key, lane in box._lanes.items() if key.task_id == task_id}
    peering = task.peering
    found = {
        "row": task.row,
        "people": sorted(task.people),
        "asks": (task.asks.all(), dict(task.asks.waiting), task.asks.opened, sorted(task.met)),
        "calls": dict(task.calls),
        "waits": sorted(key for key, wait in task.waits.items()),
        "open waits": sorted(wait.row.call_id for name in lanes for wait in task.open_waits(name)),
        "replies": {name: list(ids) for name, ids in task.replies.items()},
        "flags": (task.pausing, task.exhausted, task.stored, task.offer),
        "finish": task.finish and task.finish.seq,
        "waiters": len(task.waiters),
        "steps due": sorted(task.steps_due),
        "peers": peering
        and (
            {peer: count for peer, count in peering.sent.items() if count},
            {node: count for node, count in peering.taken.items() if count},
            sorted(peering.met),
            dict(peering.contacts),
            peering.closed,
        ),
        "mail": sorted((x.key.agent, q.seq) for x in lanes.values() for _, q in x.queued_messages),
        "blocked": sorted(name for name, lane in lanes.items() if lane.blocked),
        "held": box._held.get(task_id),
        "readers": runtime._context.events.has_readers,
    }
    copied: dict[str, Any] = {name: repr(value) for name, value in found.items()}
    return copied


# --- doors ----------------------------------------------------------------------------------------


async def joins(stage: Stage) -> Door:
    await stage.begins("park", parks="supervisor")
    request = RunRequest(message=user_message("more"), streamed=True)
    return lambda stage: stage.runtime.open_run(request)


async def opens(stage: Stage) -> Door:
    await stage.runtime.start()
    return lambda stage: stage.runtime.open_run(RunRequest(message=user_message(), streamed=True))


async def continues(stage: Stage) -> Door:
    await stage.begins("finish")
    stage.matches = lambda post: not post.new  # the task is looked for in the store after that
    return lambda stage: stage.runtime.open_run(RunRequest(message=user_message(), streamed=True))


async def resumes(stage: Stage) -> Door:
    await stage.begins("review")
    request = RunRequest(
        message=user_message(),
        resume_from="breakpoint_tool_call",
        breakpoint_tool_call_result="yes",
        streamed=True,
    )
    return lambda stage: stage.runtime.open_run(request)


async def decides(stage: Stage) -> Door:
    await stage.begins("guarded")
    [asked] = await stage.runtime.get_approvals("open", "task-1", 9)
    answer = Answer("response", text="no")
    return lambda stage: stage.runtime.answer_approval(asked["approval_id"], answer, ALICE)


async def cancels(stage: Stage) -> Door:
    await stage.begins("park", parks="supervisor")
    return lambda stage: stage.runtime.cancel_task("task-1")


async def letter_answers(stage: Stage) -> Door:
    await stage.begins("write")
    await stage.keeps()
    [(row, _)] = await stage.store.letters(SWARM, "editor", LetterFilter())
    return lambda stage: stage.runtime.letters.take(reply(row))


async def gives_up(stage: Stage) -> Door:
    await stage.begins("write")
    await stage.keeps()
    [asked] = await stage.store.old_asks(SWARM, "9999", 10)
    return lambda stage: stage.runtime.letters.give_up(asked)


async def _set_aside(stage: Stage) -> int:
    """Have the worker's mail set aside in a task in which the supervisor is at work."""
    await stage.begins("park", parks="supervisor")
    await stage.runtime.submit(user_message("hello", to="worker"))
    await stage.keeps()
    owner, task = stage.runtime._context.owner, stage.runtime._context.active_tasks.get("task-1")
    assert task is not None
    post = Commit(owner=owner, task=task.row, deliveries=(task.turns["worker"].queued.delivery,))
    receipt = await stage.store.commit(post)
    turn = TurnCommit(owner=owner, task=task.row, seq=receipt.seqs[0], dead="it crashed")
    await stage.store.commit(turn)
    return receipt.seqs[0]


async def retries(stage: Stage) -> Door:
    number = await _set_aside(stage)
    return lambda stage: stage.runtime.set_aside.retry("task-1", number, ALICE)


async def discards(stage: Stage) -> Door:
    number = await _set_aside(stage)
    return lambda stage: stage.runtime.set_aside.discard("task-1", number, ALICE)


DOORS: dict[str, Callable[[Stage], Awaitable[Door]]] = {
    door.__name__: door
    for door in (
        joins,
        opens,
        continues,
        resumes,
        decides,
        cancels,
        letter_answers,
        gives_up,
        retries,
        discards,
    )
}


@pytest.mark.parametrize(("name", "error"), _tried(*DOORS))
async def test_what_a_door_could_not_store_is_not_in_memory(name: str, error: StoreError) -> None:
    patient = name == "cancels" and not isinstance(error, StoreConflict)
    stage = Stage()
    door = await DOORS[name](stage)
    before = memory(stage.runtime)
    stage.refuses = error
    if patient:  # it is tried again until it is stored
        await door(stage)
    elif name == "opens" and isinstance(error, StoreConflict):  # another process was faster
        with pytest.raises(UnknownTask):
            await door(stage)
        assert stage.runtime._context.active_tasks.get("task-1") is None
    else:
        with pytest.raises(MAILError):
            await door(stage)
        assert memory(stage.runtime) == before
    assert stage.refuses is None
    if before is not None:
        assert stage.seen == [before]
    await stage.runtime.shutdown(grace=0)


@pytest.mark.parametrize("name", DOORS)
async def test_what_a_door_is_told_of_is_stored_and_in_memory(name: str) -> None:
    stage = Stage()
    await (await DOORS[name](stage))(stage)
    live = stage.runtime._context.active_tasks.get("task-1")
    row = await stage.store.load_task(stage.runtime._context.owner, "task-1")
    assert live is None or live.row == row
    await stage.runtime.shutdown(grace=0)


# --- turns ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("doing", "error"),
    _tried("ask", "finish", "review", "guarded", "write", "interrupt", "wait"),
)
async def test_what_a_turn_could_not_store_is_not_in_memory(doing: str, error: StoreError) -> None:
    stage = Stage()
    await stage.begins(f"park {doing}", parks="supervisor")
    await stage.keeps()
    task, before = stage.runtime._context.active_tasks.get("task-1"), memory(stage.runtime)
    assert task is not None
    other = task.turns["worker"]
    stage.refuses = error
    stage.gates["supervisor"].set()
    await until(lambda: "supervisor" not in task.turns)
    assert stage.seen == [before]
    assert memory(stage.runtime) == before
    assert not other.abandoned
    await stage.runtime.shutdown(grace=0)


# --- other swarms ---------------------------------------------------------------------------------


class Peers:
    """A swarm whose agent has asked one of another swarm, and that one's store refuses a commit."""

    def __init__(self, network: Network) -> None:
        self.refuses: Exception | None = None
        self.seen: list[dict[str, Any] | None] = []
        self.store = HookedStore(MemoryStore(), before=self._before)
        self.gate = asyncio.Event()
        self.harbour = network.add("harbour", self._agents, store=self.store)
        self.weather = network.add("weather", lambda: {"wind": leader(echo)})
        network.down.add("weather")

    def _agents(self) -> dict[str, AgentCore]:
        async def lead(messages: list[dict[str, Any]], choice: object) -> Any:
            if len(messages) == 1:
                return None, tool_calls(send("send_request", "wind@weather", "blow"))
            await self.gate.wait()
            return None, tool_calls(("await_message", {}))

        core = leader(echo)
        core.function = lead
        return {"lead": core}

    async def _before(self, post: Commit) -> None:
        if self.refuses is not None:
            error, self.refuses = self.refuses, None
            self.seen.append(memory(self.harbour.runtime()))
            raise error


async def peer_answers(peers: Peers) -> Callable[[], Awaitable[object]]:
    [(_, row)] = await peers.store.due_outbox("harbour", FAR, 9)
    mail = peer_mail(
        "response",
        peer="weather",
        to="lead",
        ref=row.ref,
        task_id="task-1",
        task_owner="user:ines@harbour",
    )
    return lambda: peers.harbour.runtime().peers.take(mail)


async def peer_pauses(peers: Peers) -> Callable[[], Awaitable[object]]:
    shown = {"call_id": "c1", "name": "review", "arguments": "{}"}
    mail = peer_mail(
        "response",
        peer="weather",
        to="lead",
        task_id="task-1",
        task_owner="user:ines@harbour",
        control=PeerControl("paused", calls=(shown,)),
    )
    return lambda: peers.harbour.runtime().peers.take(mail)


async def _outcome(peers: Peers, state: Any) -> Callable[[], Awaitable[object]]:
    [(_, row)] = await peers.store.due_outbox("harbour", FAR, 9)
    outcome = DeliveryOutcome(state, "gone", runner="swarm:harbour@weather")
    return lambda: peers.harbour.runtime().peers.settle(row, outcome)


async def delivered(peers: Peers) -> Callable[[], Awaitable[object]]:
    return await _outcome(peers, "delivered")


async def undeliverable(peers: Peers) -> Callable[[], Awaitable[object]]:
    return await _outcome(peers, "undeliverable")


PEERS = {door.__name__: door for door in (peer_answers, peer_pauses, delivered, undeliverable)}


@pytest.mark.parametrize(("name", "error"), _tried(*PEERS))
async def test_what_a_peer_brings_is_not_in_memory_before_it_is_stored(
    name: str, error: StoreError
) -> None:
    network = Network()
    peers = Peers(network)
    runtime = peers.harbour.runtime()
    await runtime.start()
    await runtime.submit(question())
    await runtime.await_queue_empty()
    await runtime.submit(question("again"))  # the agent works on that, so the task is in memory
    await until(lambda: runtime._scheduler.at_work)
    takes = await PEERS[name](peers)
    before = memory(runtime)
    peers.refuses = error
    with pytest.raises(StoreError):
        await takes()
    assert peers.seen == [before]
    assert memory(runtime) == before
    await takes()  # and it is taken when it comes again
    live = runtime._context.active_tasks.get("task-1")
    assert live is not None
    assert live.row == await peers.store.load_task(HARBOUR, "task-1")
    await runtime.shutdown(grace=0)
