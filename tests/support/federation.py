"""Several swarms in one process: runtimes, and a network between them that moves real wrappers."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

from pydantic_core import from_json, to_json

from mail.clock import SystemClock
from mail.core.addresses import create_agent_address, create_user_address
from mail.core.agents import AgentCore
from mail.core.compose import Composer
from mail.core.interswarm import DeliveryOutcome
from mail.core.runtime import MAILRuntime, RuntimeSettings
from mail.core.schema import parse_interswarm_message
from mail.core.wire import MAILInterswarmMessage, MAILMessage
from mail.db.memory import MemoryStore
from mail.db.records import OutboxChange, OutboxRow, Owner
from mail.db.store import Store
from mail.errors import ClaimLost, MAILError, ShuttingDown, ToolError
from mail.services.peer_mail import find_place, opened
from tests.support.waiting import until as until

FAR = "9999-01-01T00:00:00+00:00"


class Side:
    """One swarm: its store, its agents and its runtimes, one for each owner.

    ``stripped`` leaves what only MAIL servers of this version say out of its mail, like 1.3.6.
    """

    def __init__(
        self,
        network: "Network",
        name: str,
        agents: Callable[[], dict[str, AgentCore]],
        store: Store | None = None,
        **options: Any,
    ) -> None:
        self.network, self.name, self._agents = network, name, agents
        self.store = store or MemoryStore()
        self.options = options
        self.stripped = False
        self.runtimes: dict[Owner, MAILRuntime] = {}

    def runtime(self, role: str = "user", name: str = "ines") -> MAILRuntime:
        """Return the runtime of an owner."""
        owner = Owner(self.name, role, name)
        if owner not in self.runtimes:
            agents = self._agents()
            actions = {k: v for one in agents.values() for k, v in (one.actions or {}).items()}
            given = {
                "entrypoint": next(iter(agents)),
                "print_llm_streams": False,
                "settings": RuntimeSettings(shutdown_grace=0, hint_pause=0.01),
                **self.options,
            }
            self.runtimes[owner] = MAILRuntime(
                agents,
                actions,
                name,
                role,
                self.name,
                enable_interswarm=True,
                store=self.store,
                gateway=Way(self.network, self.name),
                **given,
            )
        return self.runtimes[owner]

    async def take(self, wrapper: MAILInterswarmMessage, *, opens: bool = True) -> str:
        """Do what a server does with a wrapper; return the name of the runtime that took it."""
        wrapper = parse_interswarm_message(wrapper)
        peer = wrapper["source_swarm"]
        place = await find_place(self.store, self.name, wrapper, peer, may_open=opens)
        runtime = self.runtime(place.owner.role, place.owner.id)
        receipt = from_json(await runtime.peers.take(opened(wrapper, peer, place)))
        return str(receipt["local_runner"])

    async def check_ledgers(self) -> None:
        """See that the store has the open questions of all tasks that are in memory."""
        for owner, runtime in self.runtimes.items():
            for task in runtime._context.active_tasks:
                if task.stored and not task.asks.first:
                    async with task.order:
                        stored = await self.store.ledger(owner, task.task_id)
                        known = [each for each in task.asks.all() if "participant" not in each.kind]
                        assert stored is not None and list(stored.questions) == known

    async def stop(self) -> None:
        """Stop its runtimes, as when its process ends in good order."""
        stopping, self.runtimes = self.runtimes, {}
        for runtime in stopping.values():
            await runtime.shutdown(grace=0)
        self.network.wake()


class Way:
    """The gateway of one side."""

    def __init__(self, network: "Network", swarm: str) -> None:
        self._network, self._swarm = network, swarm

    def check(self, swarm: str) -> None:
        if swarm not in self._network.sides:
            raise ToolError(f"unknown swarm '{swarm}'")

    def swarms(self) -> list[str]:
        return sorted(name for name in self._network.sides if name != self._swarm)

    def wake(self, peers: Collection[str]) -> None:
        self._network.wake()

    async def hint(self, swarm: str, wrapper: MAILInterswarmMessage) -> bool:
        return await self._network.hint(swarm, wrapper)

    async def discover(self, urls: Sequence[str]) -> tuple[list[str], list[str]]:
        return [], []


class Network:
    """Moves the mail of all sides.

    ``down`` names swarms that cannot be reached at the moment. ``twice`` repeats every delivery and
    what is told of it. ``mortal`` is what stands for the death of a process. ``loses_hint`` says of
    each hint whether it is lost.
    """

    def __init__(self) -> None:
        self.sides: dict[str, Side] = {}
        self.down: set[str] = set()
        self.refusals: list[tuple[str, str]] = []
        self.moved: list[MAILInterswarmMessage] = []
        self.hinted: list[MAILInterswarmMessage] = []
        self.loses_hint: Callable[[], bool] = lambda: False
        self.twice = False
        self.mortal: tuple[type[BaseException], ...] = ()
        self._wanted = asyncio.Event()
        self._mover: asyncio.Task[None] | None = None
        self.errors: list[BaseException] = []

    def add(self, name: str, agents: Callable[[], dict[str, AgentCore]], **more: Any) -> Side:
        """Add a swarm."""
        self.sides[name] = Side(self, name, agents, **more)
        return self.sides[name]

    def wake(self) -> None:
        """Look for mail."""
        self._wanted.set()

    async def __aenter__(self) -> "Network":
        self._mover = asyncio.create_task(self._move())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._mover is not None
        self._mover.cancel()
        await asyncio.gather(self._mover, return_exceptions=True)
        for side in self.sides.values():
            await side.check_ledgers()
            await side.stop()
        assert not self.errors, self.errors

    @property
    def hints(self) -> int:
        """How many hints there were."""
        return len(self.hinted)

    async def hint(self, swarm: str, wrapper: MAILInterswarmMessage) -> bool:
        """Deliver a message that may be lost, unless it is."""
        self.hinted.append(wrapper)
        source = wrapper["source_swarm"]
        if self.loses_hint() or swarm in self.down or self.sides[source].stripped:
            return False
        try:
            await self.sides[swarm].take(from_json(to_json(wrapper)), opens=False)
        except ShuttingDown:
            return False
        except MAILError:
            return True
        return True

    async def _move(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):  # wait_for of Python 3.11 can lose a cancellation
                    await self._wanted.wait()
            self._wanted.clear()
            try:
                await self.sweep()
            except self.mortal:
                continue
            except Exception as error:  # noqa: BLE001 - the test hears of it
                self.errors.append(error)

    async def sweep(self) -> None:
        """Deliver what can be delivered."""
        going = True
        while going:
            going = False
            for side in list(self.sides.values()):
                await side.store.open()
                due = await side.store.due_outbox(side.name, FAR, 100)
                for owner, row in due:
                    with suppress(ShuttingDown, ClaimLost):  # it is tried again after the restart
                        going |= await self._deliver(side, owner, row)

    async def _deliver(self, side: Side, owner: Owner, row: OutboxRow) -> bool:
        if owner == Owner.of_deleted(side.name):
            return await self._deliver_last_words(side, row)
        runtime = side.runtime(owner.role, owner.id)
        if row.peer in self.down:
            if not row.told:
                await runtime.peers.settle(row, DeliveryOutcome("delayed", "connection refused"))
            return False
        wrapper = from_json(row.wrapper)
        if side.stripped:
            wrapper["metadata"] = {}
        self.moved.append(wrapper)
        there = self.sides[row.peer]
        try:
            runner = await there.take(wrapper)
            if self.twice:
                assert await there.take(wrapper) == runner
        except ShuttingDown:
            return False
        except MAILError as error:
            self.refusals.append((row.peer, str(error)))
            await runtime.peers.settle(row, DeliveryOutcome("undeliverable", str(error)))
            return True
        outcome = DeliveryOutcome("delivered", runner=runner)
        await runtime.peers.settle(row, outcome)
        if self.twice:
            await runtime.peers.settle(row, outcome)
        return True

    async def _deliver_last_words(self, side: Side, row: OutboxRow) -> bool:
        """Do what a sender does with mail of a task that was deleted: nobody hears of it."""
        if row.peer in self.down:
            return False
        wrapper = from_json(row.wrapper)
        self.moved.append(wrapper)
        await self.sides[row.peer].take(wrapper)
        await side.store.change_outbox([OutboxChange(row.id, "done")])
        return True


def question(body: str = "Hello", task_id: str = "task-1", to: str = "lead") -> MAILMessage:
    """Return a message of the user ines."""
    composer = Composer("harbour", SystemClock())
    return composer.message(
        "request",
        task_id,
        create_user_address("ines"),
        [create_agent_address(to)],
        "Question",
        body,
    ).to_wire()
