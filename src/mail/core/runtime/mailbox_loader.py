"""Reading a task's waiting mail back from the store: its stash, or what a dead process left."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mail.core.runtime.active_tasks import ActiveTask
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.delivery import MailDelivery
from mail.core.runtime.mailbox import LaneKey, QueuedMessage
from mail.core.runtime.transaction import TaskChange
from mail.core.runtime.turn_end import TurnEnd
from mail.db.commit import Commit
from mail.errors import StoreError

if TYPE_CHECKING:
    from mail.db.records import Delivery

logger = logging.getLogger(__name__)

_PAUSE = 0.5


@dataclass(slots=True, eq=False)
class MailboxLoader:
    """Puts waiting mail into the mailbox again."""

    context: RuntimeContext
    mail_delivery: MailDelivery
    turn_end: TurnEnd
    _late: set["asyncio.Task[None]"] = field(default_factory=set)

    async def load(self, task: ActiveTask) -> None:
        """Read a task's mail back; when the store fails, go on trying in the background.

        What the caller brought is stored by then, so a failure here is no refusal.
        """
        try:
            await self.refill(task)
        except StoreError as error:
            logger.warning("the mail of task '%s' cannot be read yet: %s", task.task_id, error)
            task.pins += 1
            late = asyncio.ensure_future(self._load_late(task))
            self._late.add(late)
            late.add_done_callback(self._late.discard)

    async def _load_late(self, task: ActiveTask) -> None:
        try:
            while not (task.loaded or self.context.status.draining):
                await asyncio.sleep(_PAUSE)
                try:
                    await self.refill(task)
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
        self.turn_end.hold_at_limit(task)


def _is_orphan(queued: QueuedMessage, task: ActiveTask, *, recovered: bool) -> bool:
    """Tell whether nobody wants a message any more."""
    if queued.finish:  # the run that it was to finish has ended
        return queued is not task.finish and not queued.filed
    if queued.goes_on and not recovered:
        return False  # its caller may have left; what its agent has begun comes to its end
    return queued.of_step and queued.step_ref not in task.steps_due  # its driver has gone
