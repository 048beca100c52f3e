"""Reading a task's waiting mail back from the store: its stash, or what a dead process left."""

import asyncio
import logging
from dataclasses import dataclass, field

from mail.core.envelope import Envelope
from mail.core.runtime.active_tasks import LiveTask
from mail.core.runtime.context import Parts
from mail.core.runtime.delivery import PostOffice
from mail.core.runtime.mailbox import LaneKey, Letter
from mail.core.runtime.turn_commit import Conclusions
from mail.db.base import Delivery, Post
from mail.errors import StoreError

__all__ = ["Stash"]

logger = logging.getLogger(__name__)

_PAUSE = 0.5


@dataclass(slots=True, eq=False)
class Stash:
    """Puts waiting mail into the mailbox again."""

    parts: Parts
    post_office: PostOffice
    conclusions: Conclusions
    _late: set["asyncio.Task[None]"] = field(default_factory=set)

    async def load(self, task: LiveTask) -> None:
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

    async def _load_late(self, task: LiveTask) -> None:
        try:
            while not (task.loaded or self.parts.draining):
                await asyncio.sleep(_PAUSE)
                try:
                    await self.refill(task)
                except StoreError:
                    continue
        finally:
            task.pins -= 1
        await self.conclusions.check(task)
        self.conclusions.lanes.settle(task)
        self.conclusions.wake()

    async def refill(self, task: LiveTask, *, recovered: bool = False) -> None:
        """Put a task's waiting mail (its stash) back into the mailbox, in its old order.

        Args:
            recovered: The first letter of each lane may have been in work when a process died.
        """
        rows: list[Delivery] = []
        begun: set[int] = set()
        out: set[int] | None = None
        while out != task.out:  # else what is out was consumed or put back during the read
            out = set(task.out)
            rows = await self.parts.store.waiting_mail(self.parts.owner, task.task_id)
            begun = set(await self.parts.store.begun(self.parts.owner, task.task_id))
        rows.sort(key=lambda row: row.seq not in begun)
        for call in task.open_calls():
            self.parts.mailbox.block(LaneKey(task.task_id, call.agent))
        task.loaded = True
        seen: set[str] = set()
        orphans: list[int] = []
        for row in rows:
            if row.seq not in task.out:
                first = row.recipient not in seen
                seen.add(row.recipient)
                letter = Letter.read(row, recovered=recovered and first, filed=row.seq in begun)
                if letter.finish and task.row.finish_asked:
                    task.finish = letter
                if _is_orphan(letter, task, recovered=recovered):
                    orphans.append(row.seq)
                    continue
                task.note_waiting(letter.envelope)
                self.post_office.put_back(task, letter)
        if orphans:
            orphaned = Post(owner=self.parts.owner, task=task.row, settled=tuple(orphans))
            await self.parts.commit(orphaned)
        self.conclusions.hold_at_limit(task)

    async def recall(self, task: LiveTask) -> None:
        """Find out which requests of a task from the store are still open (ruling 12)."""
        for delivery in await self.parts.store.all_mail(self.parts.owner, task.task_id):
            task.note_sent(Envelope.from_json(delivery.payload))


def _is_orphan(letter: Letter, task: LiveTask, *, recovered: bool) -> bool:
    """Tell whether nobody wants a letter any more."""
    if letter.finish:  # the run that it was to finish has ended
        return letter is not task.finish and not letter.filed
    if letter.goes_on and not recovered:
        return False  # its caller may have left; what its agent has begun comes to its end
    return letter.of_step and letter.step_ref not in task.steps_due  # its driver has gone
