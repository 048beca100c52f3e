"""One swarm instance per caller: made once, kept while it works, closed when it idles.

An instance belongs to ``(role, id)``. Its tasks are in the store, so closing an idle instance
loses nothing; the caller's next request makes a new one.
"""

import asyncio
import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mail.auth.callers import Caller, hash_token
from mail.db.records import Owner
from mail.db.store import Store
from mail.errors import MAILError, ShuttingDown, StoreError
from mail.llm.provider_env import ModelUse
from mail.logcontext import bound
from mail.server.errors import ServerBusy
from mail.server.quotas import KeyLocks

if TYPE_CHECKING:
    from mail.api import MAILSwarm, MAILSwarmTemplate
    from mail.services.event_log import EventLog
    from mail.services.tasks import LiveEvents

_log = logging.getLogger("mail.server")

SwarmFactory = Callable[[Caller, str], Awaitable["MAILSwarm"]]
"""Makes a caller's swarm, not yet started; the second argument is the caller's token or ""."""


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """The swarm that a pool makes instances of.

    Attributes:
        template: The swarm.
        make: Makes a caller's instance of it.
        needs_token: The swarm calls its model with the caller's own token.
        uses: The agents with the models of providers that they ask.
    """

    template: "MAILSwarmTemplate"
    make: SwarmFactory
    needs_token: bool = False
    uses: Sequence[ModelUse] = ()


@dataclass(slots=True, eq=False)
class _Instance:
    swarm: "MAILSwarm"
    served: Served
    token_hash: str
    last_used: float
    users: int = 0

    @property
    def idle(self) -> bool:
        """Nobody uses the swarm, and it has nothing to do."""
        return self.users == 0 and bool(self.swarm.idle)

    def outdated(self, served: Served, token: str) -> bool:
        """Tell whether the swarm was made of another template, or with another token ("": any)."""
        if self.served is not served:
            return True
        return served.needs_token and bool(token) and self.token_hash != hash_token(token)


@dataclass(frozen=True, slots=True)
class _CallersEvents:
    """The log of the instance that a caller has at the moment, if it is one of that swarm."""

    pool: "InstancePool"
    caller: Caller
    swarm: str

    @property
    def log(self) -> "EventLog | None":
        return self.pool.log_of(self.caller, self.swarm)

    @property
    def closing(self) -> bool:
        return self.pool.closed


MAX_INSTANCES: Final = 1000
"""Callers whose instances are in memory; the one idle for longest makes room."""


class InstancePool:
    """The instances of one server.

    A caller has one instance at most. One at work goes on with what it was made of, the template
    as well as the token; the caller's first request after that work gets a new one.

    Args:
        served: The swarm that they are instances of. Where a caller's token is needed, it goes to
            the factory and is not kept.
        idle_seconds: An instance with nothing to do for so long is closed.
        places_of: Gives the places for large answers to a caller.
        now: A monotonic clock in seconds.
    """

    def __init__(
        self,
        served: Served,
        *,
        idle_seconds: float,
        places_of: Callable[[Caller], asyncio.Semaphore] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._served = served
        self._idle_seconds = idle_seconds
        self._places_of = places_of
        self._now = now
        self._live: OrderedDict[Caller, _Instance] = OrderedDict()
        self._locks: KeyLocks[Caller] = KeyLocks()
        self._starting = 0
        self._sweeper: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def closed(self) -> bool:
        """Tell whether the pool makes no more instances."""
        return self._closing is not None

    @property
    def degraded(self) -> bool:
        """Tell whether the store fails any instance at the moment."""
        return any(instance.swarm.runtime.degraded for instance in self._live.values())

    @property
    def open_tasks(self) -> int:
        """The number of tasks that are worked on here, or queued for that."""
        return sum(len(instance.swarm.runtime.open_tasks) for instance in self._live.values())

    @property
    def served(self) -> Served:
        """The swarm that new instances are made of."""
        return self._served

    def serving(self, caller: Caller) -> Served:
        """Return what serves a caller: what its instance at work is made of, or the newest."""
        instance = self._live.get(caller)
        return self._served if instance is None or instance.idle else instance.served

    def replace(self, served: Served) -> None:
        """Make new instances of something else from now on; see `sweep` for those that idle."""
        self._served = served

    def log_of(self, caller: Caller, swarm: str) -> "EventLog | None":
        """Return the live log of a caller's instance, if there is one of that swarm."""
        instance = self._live.get(caller)
        if instance is None or instance.swarm.name != swarm:
            return None
        log: EventLog = instance.swarm.runtime.event_log
        return log

    def holds(self, owner: Owner, task_id: str) -> bool:
        """Tell whether an instance has claimed a task, and knows of it."""
        instance = self._live.get(Caller(owner.role, owner.id))
        return instance is not None and instance.swarm.runtime.holds(task_id)

    def is_busy(self, owner: Owner, task_id: str) -> bool:
        """Tell whether an instance has a task in memory, because something happens to it."""
        instance = self._live.get(Caller(owner.role, owner.id))
        return instance is not None and task_id in instance.swarm.runtime.open_tasks

    def turns_at_work(self, swarm: str, caller: Caller | None = None) -> list[tuple[str, int]]:
        """Return the agents of a swarm that are in a turn, and the tiers of what they read.

        Args:
            swarm: The swarm.
            caller: Only in tasks of this caller.
        """
        return [
            turn
            for whose, instance in self._live.items()
            if caller in (None, whose) and instance.swarm.name == swarm
            for turn in instance.swarm.runtime.turns_at_work
        ]

    def large_mail(self, caller: Caller) -> int:
        """Return what a caller's long messages come to that wait or are worked on."""
        instance = self._live.get(caller)
        return 0 if instance is None else instance.swarm.runtime.large_mail

    def live(self, caller: Caller, swarm: str) -> "LiveEvents":
        """Return where the events of a caller's running tasks in a swarm are heard of."""
        return _CallersEvents(self, caller, swarm)

    def start(self) -> None:
        """Begin to close instances that idle."""
        self._sweeper = asyncio.create_task(self._sweep_forever(), name="instance sweeper")

    @asynccontextmanager
    async def lease(self, caller: Caller, token: str = "") -> AsyncIterator["MAILSwarm"]:
        """Lend the caller's instance for the length of a ``with`` block; see `borrow`."""
        async with AsyncExitStack() as held:
            yield await self.borrow(held, caller, token)

    @asynccontextmanager
    async def lend_owner(self, owner: Owner, token: str = "") -> AsyncIterator["MAILSwarm"]:
        """Lend the instance of a task's owner, for what others do to the task.

        Args:
            owner: The owner.
            token: The owner's own token, if the owner is who does it.

        Raises:
            ServerBusy: it cannot be had now.
        """
        caller = Caller(owner.role, owner.id)
        needs_token = self.served.needs_token and not token
        if needs_token and self.log_of(caller, owner.swarm) is None:
            raise ServerBusy(
                "the swarm calls its model with its callers' own tokens, and this task waits for "
                "its owner to come back"
            )
        async with self.lease(caller, token) as swarm:
            if swarm.name != owner.swarm:
                raise ServerBusy("another swarm is still at work for the task's owner")
            yield swarm

    async def borrow(self, held: AsyncExitStack, caller: Caller, token: str = "") -> "MAILSwarm":
        """Return the caller's instance, making and starting it if needed.

        It is not closed for idling until ``held`` is.

        Raises:
            ShuttingDown: the pool is closed.
            ServerBusy: there are too many instances, and all are at work.
        """
        instance = self._ready(caller, token)
        if instance is None:
            async with self._locks.hold(caller):
                instance = await self._obtain(caller, token)
                instance.users += 1
        else:
            instance.users += 1
        held.callback(self._give_back, instance)
        return instance.swarm

    def _give_back(self, instance: _Instance) -> None:
        instance.users -= 1
        instance.last_used = self._now()

    async def sweep(self) -> int:
        """Close the instances that have idled long enough or are outdated; return how many."""
        stale = [caller for caller, instance in self._live.items() if self._is_stale(instance)]
        for caller in stale:
            async with self._locks.hold(caller):
                instance = self._live.get(caller)
                if instance is not None and self._is_stale(instance):
                    await self._close(caller, instance)
        return len(stale)

    def _is_stale(self, instance: _Instance) -> bool:
        old = instance.served is not self._served
        return instance.idle and (old or instance.last_used <= self._now() - self._idle_seconds)

    async def close(self, grace: float) -> None:
        """Stop every instance, each within ``grace`` seconds, and make no new ones.

        Further calls wait for the first one.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close_all(grace), name="instance close")
        await asyncio.shield(self._closing)

    async def _close_all(self, grace: float) -> None:
        sweeper, self._sweeper = self._sweeper, None
        if sweeper is not None:
            sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await sweeper
        await asyncio.gather(*(self._stop(c, i.swarm, grace) for c, i in self._live.items()))
        self._live.clear()

    def _ready(self, caller: Caller, token: str) -> _Instance | None:
        """Return the caller's instance if it can be lent as it is, and nobody changes it now."""
        instance = self._live.get(caller)
        if instance is None or self.closed or caller in self._locks:
            return None
        if instance.outdated(self._served, token) and instance.idle:
            return None
        self._live.move_to_end(caller)
        instance.last_used = self._now()
        return instance

    async def _obtain(self, caller: Caller, token: str) -> _Instance:
        if self.closed:
            raise ShuttingDown()
        instance = self._live.get(caller)
        if instance is not None and instance.outdated(self._served, token) and instance.idle:
            await self._close(caller, instance)
            instance = None
        if instance is None:
            instance = await self._create(caller, token)
        self._live.move_to_end(caller)
        instance.last_used = self._now()
        return instance

    async def _create(self, caller: Caller, token: str) -> _Instance:
        self._starting += 1  # before the first await: others count it against the limit
        try:
            await self._make_room()
            served = self._served
            used = token if served.needs_token else ""
            swarm = await served.make(caller, used)
            if self._places_of is not None:
                swarm.runtime.event_log.places = self._places_of(caller)
            try:
                # What the instance does in the background is not this request's doing.
                with bound(request_id="", task_id=""):
                    await swarm.start()
            except BaseException:
                await self._stop(caller, swarm, 0.0)
                raise
        finally:
            self._starting -= 1
        instance = _Instance(swarm, served, hash_token(used) if used else "", self._now())
        if self.closed:  # the pool closed while the swarm started
            await self._stop(caller, swarm, 0.0)
            raise ShuttingDown()
        self._live[caller] = instance
        return instance

    async def _make_room(self) -> None:
        while len(self._live) + self._starting > MAX_INSTANCES:
            # A caller whose lock is taken is about to use its instance.
            oldest = next(
                (c for c, i in self._live.items() if i.idle and c not in self._locks), None
            )
            if oldest is None:
                raise ServerBusy(
                    f"the server serves {MAX_INSTANCES} callers, which is its limit; try "
                    "again later"
                )
            async with self._locks.hold(oldest):
                instance = self._live.get(oldest)
                if instance is not None and instance.idle:
                    await self._close(oldest, instance)

    async def _close(self, caller: Caller, instance: _Instance) -> None:
        del self._live[caller]
        await self._stop(caller, instance.swarm, None)

    async def _stop(self, caller: Caller, swarm: "MAILSwarm", grace: float | None) -> None:
        try:
            await swarm.shutdown(grace)
        except Exception:  # noqa: BLE001 - one instance's failure must not keep the others open
            _log.exception("an instance of role %s did not stop cleanly", caller.role)

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(max(1.0, min(60.0, self._idle_seconds / 2)))
            try:
                await self.sweep()
            except MAILError:
                _log.exception("closing idle instances failed")


_SOON_SECONDS: Final = 0.05
_LOOK_SECONDS: Final = 1.0
"""Between two looks for tasks that nobody works on."""

_LOOKS: Final = 5
"""How many looks go by until the tasks that this process has claimed are looked at, too."""


async def recover_owners(store: Store, pool: InstancePool) -> None:
    """Go on with the unfinished tasks of the pool's swarm that nobody works on, again and again.

    They are what earlier processes left, what others that share the store leave when they die,
    and what could not be loaded here because the store failed. Instances that idle on an older
    swarm are closed first. An owner that cannot be started is logged; its tasks wait until it posts
    a message, follows events or cancels a task.
    """
    with _logged():
        await pool.sweep()
    swarm = str(pool.served.template.name)
    if pool.served.needs_token:
        with _logged():
            if owners := await store.open_owners(swarm):
                _log.warning(
                    "%d callers have unfinished tasks, which continue when the caller next posts a "
                    "message or follows events, because the swarm calls its model with the "
                    "caller's own token",
                    len(owners),
                )
        return
    recovery = Recovery(store, pool, swarm)
    with store.hints("orphans") as hint:
        for number in itertools.count():
            taken = 0
            with _logged():
                taken = await recovery.take_queued()
                await recovery.take_up(own=number % _LOOKS == 0)
            await hint.wait(_SOON_SECONDS if taken else _LOOK_SECONDS)


@dataclass(slots=True, eq=False)
class Recovery:
    """The search for unfinished tasks of a swarm that nobody works on; see `recover_owners`."""

    store: Store
    pool: InstancePool
    swarm: str
    given_up: set[Owner] = field(default_factory=set)

    async def take_queued(self) -> int:
        """Begin with tasks that wait for a process with room; return with how many."""
        taken = 0
        for owner in await self.store.queued_owners(self.swarm) if self.store.shared else ():
            with suppress(MAILError):  # there is no room now, or another swarm works for the caller
                async with self.pool.lend_owner(owner) as swarm:
                    taken += int(await swarm.runtime.take_queued())
        return taken

    async def take_up(self, *, own: bool) -> None:
        """Go on with what nobody works on; with ``own``, also with what should be in memory."""
        left = await self.store.orphans(self.swarm)
        if own:
            left += await self.store.claimed(self.swarm)
        tasks: dict[Owner, list[str]] = {}
        for owner, task_id in left:
            if not self.pool.holds(owner, task_id):
                tasks.setdefault(owner, []).append(task_id)
        for owner in tasks.keys() - self.given_up:
            try:
                async with self.pool.lend_owner(owner) as swarm:
                    await swarm.runtime.take_up(tasks[owner])
            except (StoreError, ServerBusy, ShuttingDown) as error:
                _log.debug("tasks wait for the next look: %s", error)
            except Exception:  # noqa: BLE001 - the other owners' tasks must continue
                _log.exception("the unfinished tasks of a caller could not be resumed")
                self.given_up.add(owner)
            else:
                _log.info("unfinished tasks resumed", extra={"tasks": len(tasks[owner])})


@contextmanager
def _logged() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        _log.warning("unfinished tasks could not be looked up: %s", error)
    except Exception:  # noqa: BLE001 - the server goes on; the tasks wait for their callers
        _log.exception("unfinished tasks could not be looked up")
