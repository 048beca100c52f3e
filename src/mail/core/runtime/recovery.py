"""Taking up tasks from the store: what is known of them, and their waiting mail.

A task comes back when somebody needs it, or because an earlier process left it running. Its mail is
its stash, or what that process had not consumed. Who waits for whom is stored with it; of a task
that an earlier version wrote, its mail and its log tell it: they are read once.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic_core import from_json

from mail.core.envelope import Envelope
from mail.core.events import TERMINAL_KINDS, TaskEvent
from mail.core.runtime.active_tasks import ActiveTask
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.correspondence import agent_and_participant, questions_in_letters
from mail.core.runtime.delivery import MailDelivery
from mail.core.runtime.ledger import Ledger
from mail.core.runtime.mailbox import LaneKey, QueuedMessage
from mail.core.runtime.peering import Peering, swarm_of
from mail.core.runtime.run_figures import RunFigures
from mail.core.runtime.transaction import OFFERS, TaskChange, go_on
from mail.core.runtime.turn_end import TurnEnd
from mail.core.runtime.waiting import read_reports
from mail.core.tasks import TaskState
from mail.core.tools.offer import NO_OFFER, Offer
from mail.db.commit import Commit
from mail.db.ledger import Question
from mail.errors import StoreError, UnknownTask

if TYPE_CHECKING:
    from mail.db.records import Delivery

logger = logging.getLogger(__name__)

_PAUSE: Final = 0.5
_PAGE: Final = 256
_PAGE_BYTES: Final = 4 * 1024 * 1024


@dataclass(slots=True, eq=False)
class TaskLoader:
    """Puts tasks and their mail into memory again."""

    context: RuntimeContext
    mail_delivery: MailDelivery
    turn_end: TurnEnd

    async def load(self, task: ActiveTask) -> None:
        """Take a task up, but for its mail.

        Raises:
            UnknownTask: the store does not have it.
            ClaimLost: another process has taken it up at the same moment.
            StoreError: it could not be read.
        """
        store, owner, task_id = self.context.store, self.context.owner, task.task_id
        claim, row = self.context.active_tasks.claims.pop(task_id, None), None
        task.taken_up = claim is not None
        if claim is not None:
            row = await store.load_task(owner, task_id)
        elif (found := await store.claim_task(owner, task_id)) is not None:
            row, claim = found
        if row is None or claim is None:
            raise UnknownTask(task_id)
        task.row, task.claim, task.loaded = row, claim, False
        task.run = RunFigures(row.usage)
        calls = await store.calls(owner, task_id)
        task.calls = {call.key: call for call in calls if not call.is_wait}
        self.context.subjects.restored(task, calls)
        lent = await store.get_memory(owner, OFFERS, task_id)
        task.offer = NO_OFFER if lent is None else Offer.from_json(lent.value)
        task.times.go_on_from(await store.latest_time(owner, task_id))
        await self._load_ledger(task)
        if row.state is TaskState.PAUSED and not task.open_calls():
            task.change(state=TaskState.RUNNING)  # the turn that was to pause it was not stored
        task.stored, task.fresh = True, False  # not before: a store that fails is asked again
        if task.asks.first:  # an earlier version wrote it: its mail need not be read once more
            async with TaskChange(self.context, task, patient=False) as change:
                change.commit = Commit(owner, change.memory.row)

    async def _load_ledger(self, task: ActiveTask) -> None:
        context, task_id, peering = self.context, task.task_id, None
        store, owner = context.store, context.owner
        with_peers = bool(context.host or task.row.remote_swarms)
        stored = await store.ledger(owner, task_id)
        if stored is not None:
            questions = list(stored.questions)
            peering = Peering.from_json(stored.peering) if with_peers else None
        elif with_peers:
            questions, peering = await old_peering(context, task_id)
        else:
            questions = await _old_questions(context, task_id)
        if peering is not None:
            unsent = await store.task_outbox(owner, task_id)
            peering.unsent = {(r.peer, r.message_id) for r in unsent if r.state == "waiting"}
        agents, participants = context.agents, context.parts.participants
        letters = await questions_in_letters(store, owner, task_id, agents, participants)
        task.asks = Ledger.of((*questions, *letters), first=stored is None)
        task.peering, task.met = peering, {agent_and_participant(each) for each in letters}

    async def load_mail(self, task: ActiveTask, *, recovered: bool = False) -> None:
        """Read a task's mail back; when the store fails, go on trying in the background.

        What the caller brought is stored by then, so a failure here is no refusal. See `refill`.
        """
        if (task.row.state is not TaskState.RUNNING and not recovered) or task.loaded:
            return
        try:
            await self.refill(task, recovered=recovered)
        except StoreError as error:
            logger.warning("the mail of task '%s' cannot be read yet: %s", task.task_id, error)
            task.pins += 1
            go_on(self._load_late(task, recovered), self.context.under_way)
        self.context.wake()

    async def _load_late(self, task: ActiveTask, recovered: bool) -> None:
        try:
            while not (task.loaded or self.context.status.draining):
                await asyncio.sleep(_PAUSE)
                try:
                    await self.refill(task, recovered=recovered)
                except StoreError:
                    continue
        finally:
            task.pins -= 1
        await self.turn_end.check(task)
        self.context.settle(task)
        self.context.wake()

    async def refill(self, task: ActiveTask, *, recovered: bool = False) -> None:
        """Put a task's waiting mail (its stash) back into the mailbox, in its old order.

        Args:
            task: The task.
            recovered: The first message of each lane may have been in work when a process died.
        """
        rows: list[Delivery] = []
        begun: set[int] = set()
        out: set[int] | None = None
        while out != task.out:  # else what is out was consumed or put back during the read
            out = set(task.out)
            rows = await self.context.store.waiting_mail(self.context.owner, task.task_id)
            begun = set(await self.context.store.begun(self.context.owner, task.task_id))
        rows.sort(key=lambda row: row.seq not in begun)
        waiting = {wait.row.agent for wait in task.waits.values()}
        for agent in waiting.union(call.agent for call in task.open_calls()):
            self.context.mailbox.block(LaneKey(task.task_id, agent))
        task.loaded = True
        seen: set[str] = set()
        orphans: list[int] = []
        for row in rows:
            if row.seq not in task.out:
                first = row.recipient not in seen
                seen.add(row.recipient)
                queued = QueuedMessage.read(
                    row, recovered=recovered and first, filed=row.seq in begun
                )
                if queued.finish and task.row.finish_asked:
                    task.finish = queued
                if _is_orphan(queued, task, recovered=recovered):
                    orphans.append(row.seq)
                    continue
                if task.is_personal(queued.envelope):
                    task.people.add(queued.envelope.id)
                self.mail_delivery.put_back(task, queued)
        if orphans:
            commit = Commit(self.context.owner, task.row, settled=tuple(orphans))
            async with TaskChange(self.context, task, commit=commit):
                pass
        limit = task.row.max_steps  # its finisher may have been asked to end it before
        if limit is not None and task.row.steps >= limit and task.finish is not None:
            self.context.mailbox.hold(task.task_id)


def _is_orphan(queued: QueuedMessage, task: ActiveTask, *, recovered: bool) -> bool:
    """Tell whether nobody wants a message any more."""
    if queued.finish:  # the run that it was to finish has ended
        return queued is not task.finish and not queued.filed
    if queued.goes_on and not recovered:
        return False  # its caller may have left; what its agent has begun comes to its end
    return queued.of_step and queued.step_ref not in task.steps_due  # its driver has gone


# --- what earlier versions wrote ------------------------------------------------------------------


async def _old_questions(context: RuntimeContext, task_id: str) -> list[Question]:
    """Return the open questions of a task that has nothing to do with other swarms."""
    ledger = Ledger()
    for delivery in await context.store.all_mail(context.owner, task_id, whole=False):
        envelope = Envelope.from_json(delivery.payload)
        ledger.note(envelope, context.swarm, context.parts.participants)
    return ledger.all()


async def old_peering(context: RuntimeContext, task_id: str) -> tuple[list[Question], Peering]:
    """Return the open questions of a task, and what it has to do with other swarms."""
    ledger, peering, after = Ledger(), Peering(), 0
    store, owner = context.store, context.owner
    while events := await store.events(owner, task_id, after, _PAGE, _PAGE_BYTES):
        for event in events:
            _replay(event, context, ledger, peering)
        after = events[-1].seq
        await asyncio.sleep(0)  # a long log must not hold up everybody else
    for question in ledger.waited("peer"):
        ledger.close(question)
    for row in await store.task_outbox(owner, task_id):
        if row.kind == "request" and row.state != "dead":
            asked = from_json(row.wrapper)["payload"]["recipient"]["address"]
            ledger.open(Question(row.sender, asked, row.ref, "peer", row.message_id))
    return ledger.all(), peering


def _replay(event: TaskEvent, context: RuntimeContext, ledger: Ledger, peering: Peering) -> None:
    """Note what the log tells."""
    extra = event.extra
    if event.kind in TERMINAL_KINDS:
        if extra.get("status") != TaskState.PAUSED:
            ledger.end(set(extra.get("unanswered", ())))
    elif event.kind == "interswarm_message_received":
        node = str(extra.get("runner", ""))
        peering.note_taken(str(extra["swarm"]), node)
        peering.hear(node, read_reports(extra.get("reports", ())))
    elif event.kind == "interswarm_message_error":
        peering.sent[str(extra["swarm"])] -= bool(extra.get("given_up"))
    elif event.kind == "new_message":
        envelope = Envelope.from_wire(extra["full_message"])
        if swarm_of(envelope.sender):
            peering.note_received(envelope)
        else:
            peering.note_sent(envelope)
        ledger.note(envelope, context.swarm, context.parts.participants)
