"""A change of a task: what is decided, the one commit that stores it, and what follows in memory.

Changes of a task are made one after the other. A change decides on a draft of what is known of the
task (`TaskChange.memory`), while it holds the task's order; then it is stored, and only then memory
is changed, without an ``await``. So a change that is refused leaves nothing behind. What is left to
do when the next change may come is done last. No other module commits anything of a task.
"""

import asyncio
import logging
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar

from mail import metrics
from mail.core.envelope import Envelope
from mail.core.runtime.active_tasks import ActiveTask, TaskMemory, Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.delivery import Mail, MailDelivery
from mail.core.runtime.relay import NotRelayed, Relay, relayed
from mail.core.runtime.turn_result import EventDraft
from mail.core.runtime.waiters import RunResult, Waiter
from mail.core.tasks import TaskState
from mail.db.commit import Commit, Receipt, TurnCommit, size_beside_task
from mail.db.records import EventRow, MemoryRow
from mail.errors import (
    ClaimLost,
    DeskConflict,
    MAILError,
    ShuttingDown,
    StoreConflict,
    StoreError,
    TaskElsewhere,
    UnknownTask,
)

if TYPE_CHECKING:
    from mail.db.calls import CallRow

logger = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
_NOTHING: Final = Receipt(0, ())

OFFERS: Final = ("mail:offers",)
"""The namespace of tasks' offers, among their owners' memories."""


@dataclass(slots=True, kw_only=True)
class Ending:
    """The end of a run as it goes into a commit; the last event is the terminal one.

    ``unanswered`` are the messages that it leaves to a later end; none if it is ``everybody``'s.
    ``settled`` are the numbers of deliveries that are void.
    """

    result: RunResult
    message: Envelope
    events: tuple[EventRow, ...]
    response: str
    everybody: bool = False
    unanswered: set[str] = field(default_factory=set)
    settled: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class TaskChange:
    """One change of a task, for ``async with``: its body decides, leaving it commits and applies.

    A body that raises changes nothing, and so does a commit that is refused. With nothing to store,
    what is to be applied is applied all the same. When whoever waits is cancelled while it is being
    stored, it is brought to its end without them. The body must not begin another change of the
    task.

    Attributes:
        turn: The turn that ends with it.
        patient: Whether it is tried again until it is stored, when the store fails; the first
            failure is raised else, and when the runtime stops.
        commit: The records beside the mail and the ending.
        ending: The end of a run.
        waiter: The one who waits for an end from now on.
        read: The ids of users' messages that are answered, or are to be by an ending.
        came: The ids of users' messages that come with it.
        applied: The calls once it is stored, before its events are published.
        later: The calls after that, when the next change may come.
        receipt: The store's receipt.

    Raises:
        StoreConflict: when it begins or ends: the turn's mail or the task is not there any more.
        StoreError: it is not stored.
    """

    context: RuntimeContext
    task: ActiveTask
    turn: Turn | None = None
    patient: bool = True
    commit: Commit | None = None
    ending: Ending | None = None
    waiter: Waiter | None = None
    read: set[str] = field(default_factory=set)
    came: set[str] = field(default_factory=set)
    applied: list[Callable[[], object]] = field(default_factory=list)
    later: list[Callable[[], Awaitable[object]]] = field(default_factory=list)
    receipt: Receipt = _NOTHING
    _memory: TaskMemory | None = None
    _mail: Mail | None = None

    @property
    def memory(self) -> TaskMemory:
        """The decisions about the task, as the change would have them."""
        if self._memory is None:
            self._memory = self.task.draft()
        return self._memory

    @property
    def mail(self) -> Mail:
        """The messages that are sent."""
        if self._mail is None:
            self._mail = Mail(self.memory, self.applied)
        return self._mail

    @property
    def unread(self) -> set[str]:
        """The ids of users' messages that nobody has answered once it is stored."""
        return (self.task.people | self.came) - self.read

    @property
    def is_owed(self) -> bool:
        """Tell whether somebody waits for an answer of the run once it is stored."""
        return self.memory.owes_others or bool(self.task.waiters) or bool(self.unread)

    @property
    def others(self) -> bool:
        """Tell whether other turns of the task are under way."""
        turns = self.task.turns
        turn = self.turn
        return len(turns) > (turn is not None and turns.get(turn.agent) is turn)

    @property
    def last_event(self) -> int:
        """The number of its last event."""
        return self.receipt.first_event + (len(self.commit.events) if self.commit else 0) - 1

    def on_applied(self, do: Callable[..., object], *arguments: object) -> None:
        """Have something done when it is stored; it must not fail."""
        self.applied.append(partial(do, *arguments) if arguments else do)

    # --- from its begin to its end ------------------------------------------------------------

    async def __aenter__(self) -> Self:
        task = self.task
        if not task.order.try_enter():
            await task.order.enter(patient=self.patient)
        if task.void or (self.turn is not None and self.turn.void):
            task.order.leave()
            raise StoreConflict(f"what task '{task.task_id}' was to do is void")
        task.pins += 1
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            self.applied.clear()
            self.task.order.leave()
            self.task.pins -= 1
            return
        try:
            await to_its_end(self._finish(), self.context.under_way)
        except asyncio.CancelledError:
            if self.waiter is not None:
                self.waiter.leave()
                if self.waiter.subscription is not None:
                    self.context.events.unsubscribe(self.waiter.subscription)
                self.waiter = None  # it may not be stored yet
            raise

    async def _finish(self) -> None:
        try:
            try:
                stored = self._collect()
                if stored is not None:
                    await self._commit(stored)
                self._apply()
            except ClaimLost:
                task_id = self.task.task_id
                logger.warning("another server has taken up task '%s'; its work here ends", task_id)
                metrics.REFUSED.add()
                lose(self.context, self.task)
                raise
            finally:
                self.applied.clear()  # what leads back here would wait for the collector
                self.task.order.leave()
            while self.later:
                await self.later.pop(0)()
        finally:
            self.task.pins -= 1
            self.context.settle(self.task)

    def _collect(self) -> Commit | None:
        """Put everything into one commit; None if there is nothing."""
        commit, mail, memory = self.commit, self._mail, self._memory
        ledger = memory.asks.changed() if memory is not None else None
        calls: tuple[CallRow, ...] = ()
        if memory is not None and memory.calls is not self.task.calls:
            before = self.task.calls
            calls = tuple(row for key, row in memory.calls.items() if before.get(key) is not row)
        if commit is None:
            asks = ledger is not None and not ledger.first
            if self.ending is None and (mail is None or mail.is_empty) and not (asks or calls):
                return None
            commit = self.commit = Commit(self.context.owner, self.task.row)
        if mail is not None:
            commit.deliveries = tuple([queued.delivery for queued in mail.queued_messages])
            commit.events = (*commit.events, *mail.events)
            commit.outbox += mail.outbox
            calls += mail.waits
            commit.histories += mail.histories
        commit.calls = calls
        if self.ending is not None:
            commit.events += self.ending.events
            commit.settled += self.ending.settled
            commit.response, commit.snapshot = self.ending.response, True
        if memory is not None:
            commit.ledger = ledger
            if memory.offer != self.task.offer:
                now, offer = memory.now(), memory.offer.to_json()
                commit.memories += (MemoryRow(OFFERS, memory.task_id, offer, now, now),)
            self.context.subjects.collected(self, commit)
        return commit

    async def _commit(self, commit: Commit) -> None:
        """Store it.

        What becomes of the task's waiting mail with the end of a run is decided: meanwhile none is
        claimed, and turns that the end stops do not go on.
        """
        mailbox, task = self.context.mailbox, self.task
        closes = self.ending is not None or (
            self._memory is not None and self._memory.row.state is TaskState.PAUSED
        )
        if closes:
            task.order.closing = True
            mailbox.freeze(task.task_id)
        try:
            self.receipt = await self._stored(commit)
            if commit.claim is not None:
                task.claim = commit.claim.after(held=commit.task.is_unfinished)
        finally:
            if closes:
                task.order.closing = False
                mailbox.thaw(task.task_id)

    async def _stored(self, commit: Commit) -> Receipt:
        context, pause = self.context, _FIRST_PAUSE
        while True:
            try:
                await context.subjects.prepare(commit)
                receipt = await self._store(commit)
            except DeskConflict:
                context.status.degraded = None
                if not (self.patient and await context.subjects.repaired(commit)):
                    raise
            except StoreConflict:
                context.status.degraded = None
                raise
            except StoreError as error:
                if context.status.draining or not self.patient:
                    raise
                await self._wait_for_store(error, pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                context.status.degraded = None
                return receipt

    def _store(self, commit: Commit) -> Awaitable[Receipt]:
        """Hand it to the store, under the claim that this process has of the task."""
        commit.task, commit.claim = self.task.row, self.task.claim
        if self._memory is not None:  # what model calls have used is the newest
            row, usage = self._memory.row, self.task.row.usage
            commit.task = row if row.usage is usage else row.changed(usage=usage)
        if self.context.settings.news is not None:
            commit.webhooks = self.context.settings.news.told_by(commit)
        return self.context.store.commit(commit)

    async def _wait_for_store(self, error: StoreError, pause: float) -> None:
        self.context.status.degraded = str(error)
        logger.warning("the store failed; retrying in %.2f s: %s", pause, error)
        try:
            await self.task.order.pause(pause, error)
        except asyncio.CancelledError:
            self.context.status.degraded = None  # whoever still tries says it again
            raise

    # --- memory -------------------------------------------------------------------------------

    def _apply(self) -> None:
        """Change memory; nothing is awaited."""
        task, context, turn, commit = self.task, self.context, self.turn, self.commit
        if turn is not None and task.turns.get(turn.agent) is turn:
            del task.turns[turn.agent]
        if self._memory is not None:
            task.adopt(self._memory, stored=commit is not None)
        task.people |= self.came
        task.people -= self.read
        if commit is not None:
            task.stored = True
            if context.settings.quota is not None:
                added = self.receipt.added + size_beside_task(commit)
                context.settings.quota.wrote(context.owner, added)
            task.bytes = self.receipt.bytes
            if self.waiter is not None:
                self._let_wait(self.waiter)
        self._do_applied()
        if commit is not None:
            context.events.publish(task.task_id, self.receipt.first_event, commit.events)
            context.store.driver.tell(f"events {context.owner} {task.task_id}")
            if self._mail is not None and not commit.queued:
                delivery = MailDelivery(context)
                for by, stopped in delivery.hand_out(task, self._mail, self.receipt.seqs):
                    self.later.append(partial(_told_of_interrupt, context, stopped, by))
            if commit.webhooks and context.settings.news is not None:
                context.settings.news.wake()
                context.store.driver.tell("webhook")
        context.wake()

    def _do_applied(self) -> None:
        for do in self.applied:
            try:
                do()
            except Exception:  # what else is to be done must be done
                logger.exception("a change of task '%s' was not applied", self.task.task_id)

    def _let_wait(self, waiter: Waiter) -> None:
        """Register who waits, before the events are published that concern them."""
        waiter.began = self.receipt.first_event
        if waiter.streamed:
            events = self.context.events
            stream = events.subscribe(self.task.task_id, deltas=waiter.stream_tokens)
            stream.cursor = waiter.began - 1
            waiter.subscription = stream
        self.task.waiters.append(waiter)
        if self.context.status.closed:
            waiter.fail(ShuttingDown(self.task.task_id))


async def _told_of_interrupt(context: RuntimeContext, turn: Turn, by: str) -> None:
    """Log that a turn was interrupted, then let its agent go on."""
    delivery, task = MailDelivery(context), turn.task
    event = EventDraft(
        "turn_interrupted",
        f"agent {turn.agent} was interrupted by {by}",
        {"caller": turn.agent, "by": by, "partial_text": "".join(turn.partial)},
    )
    try:
        with suppress(StoreError):  # the runtime stops
            await log(context, task, turn.seq, (*turn.take_reports(), event.row(task.now())))
    finally:
        task.arriving -= 1
        delivery.end_turn(turn, put_back=True)
        context.wake()


async def log(
    context: RuntimeContext, task: ActiveTask, seq: int, rows: tuple[EventRow, ...]
) -> None:
    """Commit events about a delivery that stays waiting, unless it does not wait any more."""
    commit = TurnCommit(context.owner, task.row, seq=seq, done=False, events=rows)
    with suppress(StoreConflict):
        async with TaskChange(context, task, commit=commit):
            pass


async def log_reports(context: RuntimeContext, turn: Turn) -> None:
    """Commit what there is to tell of the model calls of a turn that does not end now."""
    reports = turn.take_reports()
    if reports:
        await log(context, turn.task, turn.seq, reports)


async def count_attempt(context: RuntimeContext, turn: Turn) -> int:
    """Count one more attempt at a turn's mail, and return how many there were with it.

    Raises:
        StoreConflict: the mail does not wait any more.
        StoreError: it could not be counted.
    """
    attempts = await context.store.count_attempt(context.owner, turn.seq)
    turn.queued.claimed = True
    return attempts


async def uncount_attempt(context: RuntimeContext, turn: Turn) -> None:
    """Take back an attempt at mail that was put off in good order."""
    with suppress(StoreError):  # consumed meanwhile, or the store is gone
        await context.store.uncount_attempt(context.owner, turn.seq)


def lose(context: RuntimeContext, task: ActiveTask) -> None:
    """Let go of a task that others work on; nothing of it is stored here any more."""
    delivery, failure = MailDelivery(context), ClaimLost(task.task_id)
    task.void, task.stored, task.loaded = True, False, False
    for turn in list(task.turns.values()):
        delivery.abandon(turn)
        delivery.end_turn(turn)
    for waiter in list(task.waiters):  # the task goes on, and whoever waits can follow its log
        waiter.leave()
        waiter.fail(failure)
    context.subjects.stopped(task)
    context.mailbox.drop(task.task_id)
    context.histories.forget(task.task_id)
    context.active_tasks.remove(task)
    context.events.lose(task.task_id)


async def check_claim(context: RuntimeContext, task: ActiveTask) -> None:
    """Check that a task is still this process's, before something that others may have begun.

    It asks the store if the process was frozen or cut off since the last look.

    Raises:
        ClaimLost: it is not.
    """
    lapses = context.store.driver.lapses
    if task.lapses != lapses:
        if not await context.store.holds(context.owner, task.task_id, task.claim):
            lose(context, task)
            raise ClaimLost(task.task_id)
        task.lapses = lapses


async def delete(context: RuntimeContext, task: ActiveTask) -> None:
    """Take a task out of the store.

    Raises:
        UnknownTask: the store does not have it.
        StoreError: it could not be deleted.
    """
    async with task.order:
        try:
            await context.store.delete_task(context.owner, task.task_id)
        except StoreConflict:
            raise UnknownTask(task.task_id) from None
        task.void, task.stored = True, False


# --- cancellation ---------------------------------------------------------------------------------


P = ParamSpec("P")
T = TypeVar("T")


class _HasContext(Protocol):
    context: RuntimeContext


H = TypeVar("H", bound=_HasContext)


def from_outside(
    method: Callable[Concatenate[H, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[H, P], Coroutine[Any, Any, T]]:
    """Start the runtime, and let the call go on to its end when whoever awaits it is cancelled.

    A process that has the task makes the call in place of this one.
    """

    @wraps(method)
    async def call(self: H, /, *args: P.args, **kwargs: P.kwargs) -> T:
        context = self.context
        await context.start()
        relay, kind = Relay(context.store, context.owner), method.__qualname__
        while True:
            try:
                return await to_its_end(method(self, *args, **kwargs), context.under_way)
            except ClaimLost:
                continue
            except TaskElsewhere as elsewhere:
                there = relay.call(kind, elsewhere.task_id, *args, **kwargs)
            with suppress(NotRelayed):
                result: T = await to_its_end(there, context.under_way)
                return result

    return relayed(call)


@types.coroutine
def to_its_end(
    doing: Coroutine[Any, Any, T], under_way: set["asyncio.Task[None]"]
) -> Generator[Any, None, T]:
    """Await something that goes on by itself when whoever awaits it is cancelled.

    ``under_way`` holds it then.

    A shielded asyncio task would do the same, at the cost of a task each time. Here one is made
    when it comes to that.
    """
    while True:
        try:
            waited = doing.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            if waited is None:  # a bare `sleep(0)`
                yield
            else:
                yield from _end_of(waited)
        except asyncio.CancelledError:
            go_on(doing, under_way, waited)
            raise


def _end_of(waited: "asyncio.Future[object]") -> "asyncio.Future[None]":
    """Return a future that is done when another is, whatever it has, and may be cancelled alone."""
    ended: asyncio.Future[None] = waited.get_loop().create_future()
    waited.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
    return ended


def go_on(
    doing: Coroutine[Any, Any, object],
    under_way: set["asyncio.Task[None]"],
    waited: "asyncio.Future[object] | None" = None,
) -> None:
    """Let something go on by itself, when what it waits for has come."""
    work = asyncio.ensure_future(_rest(doing, waited))
    under_way.add(work)
    work.add_done_callback(under_way.discard)


async def _rest(
    doing: Coroutine[Any, Any, object], waited: "asyncio.Future[object] | None"
) -> None:
    if waited is not None:
        await asyncio.wait([waited])
    with suppress(MAILError):  # nobody hears of it any more
        await _awaited(doing)


@types.coroutine
def _awaited(doing: Coroutine[Any, Any, object]) -> Generator[Any, None, None]:
    yield from doing.__await__()
