"""Mail that was set aside because it saw too many crashes: tried again, or discarded.

It is tried again as a new delivery of the same message to the same agent, whose crashes are counted
anew. Docs: ``docs/tasks.md``.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from mail.core.approvals import Answerer
from mail.core.envelope import Envelope
from mail.core.runtime.active_tasks import ActiveTask
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.mailbox import QueuedMessage
from mail.core.runtime.peering import swarm_of
from mail.core.runtime.recovery import TaskLoader
from mail.core.runtime.submission import RunRequest, Submissions
from mail.core.runtime.transaction import TaskChange, from_outside
from mail.core.runtime.turn import Control, ControlKind
from mail.core.runtime.turn_result import EventDraft
from mail.core.tasks import TaskState
from mail.db.commit import Commit
from mail.db.records import AsideRow, Delivery
from mail.errors import NotSetAside, RetryRefused, StoreConflict

_OVER: Final = (ControlKind.FINISH, ControlKind.STEP, ControlKind.RUN, ControlKind.END)


@dataclass(slots=True, eq=False)
class SetAside:
    """Retries and discards mail of one owner that was set aside."""

    context: RuntimeContext
    submissions: Submissions
    loader: TaskLoader

    @from_outside
    async def retry(self, task_id: str, number: int, by: Answerer) -> None:
        """Deliver a message again, and let its task go on; it is stored when this returns.

        Raises:
            UnknownTask: there is no such task.
            NotSetAside: it has no such mail that is set aside.
            TaskPaused: the task waits for results of breakpoint calls.
            RetryRefused: nobody could do anything with the message any more.
            ShuttingDown: the runtime takes no more work.
            StoreError: it could not be stored.
        """
        async with self.submissions.hold(task_id, new=False) as task:
            row = await self._find(task, number)
            envelope = Envelope.from_json(row.delivery.payload)
            control = Control.from_json(row.delivery.control)
            async with self._change(task, row) as change:
                if change.memory.row.state is TaskState.PAUSED:
                    raise change.memory.paused_error()
                problem = await self._problem(task, row, envelope, control)
                if problem:
                    raise RetryRefused(f"mail {number} cannot be tried again: {problem}")
                joins = change.memory.row.state is TaskState.RUNNING
                delivery = row.delivery._replace(seq=0, attempts=0)
                change.mail.queued_messages.append(QueuedMessage(delivery, envelope, control))
                change.mail.events.append(_told("mail_retried", row, by).row(change.mail.moment))
                request = RunRequest(message=envelope, awaited=False)
                self.submissions.reopen(change, request, joins=joins)
                change.memory.change(awaited=True)  # the run is to come to its end, whoever looks
                if task.is_personal(envelope):
                    change.came.add(envelope.id)

    @from_outside
    async def discard(self, task_id: str, number: int, by: Answerer) -> None:
        """Give a message up for good.

        Raises:
            UnknownTask, NotSetAside, ShuttingDown, StoreError: see `retry`.
        """
        async with self.submissions.hold(task_id, new=False, brings_mail=False) as task:
            row = await self._find(task, number)
            async with self._change(task, row) as change:
                change.mail.events.append(_told("mail_discarded", row, by).row(change.mail.moment))

    async def _find(self, task: ActiveTask, number: int) -> AsideRow:
        found = await self.context.store.mail_aside(
            self.context.owner, task.task_id, after=number - 1, limit=1
        )
        if not found or found[0].delivery.seq != number:
            raise NotSetAside(task.task_id, number)
        return found[0]

    async def _problem(
        self, task: ActiveTask, row: AsideRow, envelope: Envelope, control: Control | None
    ) -> str:
        """Return why a message is not delivered again, or no text."""
        agent = row.delivery.recipient
        foreign = envelope.kind == "request" and bool(swarm_of(envelope.sender))
        if self.context.host or foreign:
            return "whoever asked was told of the failure, and has to ask again"
        if agent not in self.context.agents:
            return f"agent '{agent}' has gone"
        if control is None:
            return ""
        if control.step is not None or control.kind in _OVER:
            return "it was an instruction of the system to a turn that is over"
        if control.kind is ControlKind.RESUME and await self._has_gone_on(task, row.delivery):
            return f"agent '{agent}' has gone on without the results that it waited for"
        return ""

    async def _has_gone_on(self, task: ActiveTask, delivery: Delivery) -> bool:
        """Tell whether an agent has read mail that came after a message which was set aside."""
        store, owner = self.context.store, self.context.owner
        unread = {each.seq for each in await store.waiting_mail(owner, task.task_id)}
        unread |= {each.delivery.seq for each in await store.mail_aside(owner, task.task_id)}
        return any(
            each.recipient == delivery.recipient and each.seq > delivery.seq
            for each in await store.all_mail(owner, task.task_id, whole=False)
            if each.seq not in unread
        )

    @asynccontextmanager
    async def _change(self, task: ActiveTask, row: AsideRow) -> AsyncIterator[TaskChange]:
        """Begin a change by which mail is not set aside any more."""
        commit = Commit(self.context.owner, task.row, unset=(row.delivery.seq,))
        try:
            async with TaskChange(self.context, task, patient=False, commit=commit) as change:
                yield change
        except StoreConflict:  # another process, while this one was not looking
            raise NotSetAside(task.task_id, row.delivery.seq) from None


def _told(kind: str, row: AsideRow, by: Answerer) -> EventDraft:
    agent, number = row.delivery.recipient, row.delivery.seq
    done = "is tried again" if kind == "mail_retried" else "was discarded"
    told = {"caller": agent, "number": number, "by": str(by)}
    return EventDraft(kind, f"mail {number} of agent {agent} {done} by {by}", told)
