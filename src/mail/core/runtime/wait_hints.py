"""Hints that a node sends when nothing goes on there; for what they say see `waiting`."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mail.core.addresses import create_agent_address
from mail.core.interswarm import SILENT, PeerControl, wire_task_id, wrap
from mail.core.runtime.active_tasks import ActiveTask
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.peering import Peering
from mail.core.runtime.waiting import Report, swarm_of_node
from mail.core.tasks import TaskState
from mail.db.records import TaskRow

if TYPE_CHECKING:
    from mail.core.wire import MAILInterswarmMessage

_LONGEST_PAUSE: Final = 300.0
_MOST_TRIES: Final = 300
_MOST_TASKS: Final = 1024
_MOST_TRIES_AT_END: Final = 12
"""Of a part that has ended, and that nothing brings back to memory but mail."""


@dataclass(slots=True, eq=False)
class _Due:
    """A report that is to be told of a task in which nothing goes on."""

    row: TaskRow
    peering: Peering
    own: Report
    pause: float
    tries: int = 0
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True, eq=False)
class WaitHints:
    """Tells other nodes of reports that they do not know, while a wait lasts.

    A wait that is over soon costs nothing: the first hint goes after a pause. One that does not
    arrive is sent again after pauses that double.
    """

    context: RuntimeContext
    _due: dict[str, _Due] = field(default_factory=dict)
    _work: set["asyncio.Task[None]"] = field(default_factory=set)

    @property
    def pending(self) -> bool:
        """Tell whether something is still to be told."""
        return bool(self._due)

    def tell(self, task: ActiveTask, own: Report) -> None:
        """Note that nothing goes on in a task.

        Args:
            task: The task.
            own: The report of it.
        """
        peering = task.peering
        if peering is None or self.context.outside.gateway is None or self.context.status.draining:
            return
        heard, peering.news = peering.news, False
        if not self._lacking(peering, own):
            self.drop(task.task_id)
            return
        waiting = self._due.get(task.task_id)
        if waiting is not None and waiting.peering is peering and not heard:
            waiting.row, waiting.own = task.row, own
            return
        if waiting is None and len(self._due) >= _MOST_TASKS:
            return
        pause = 0.0 if heard else self.context.settings.hint_pause
        self.drop(task.task_id)
        self._wait(_Due(task.row, peering, own, pause))

    def drop(self, task_id: str) -> None:
        """Tell no more of a task."""
        due = self._due.pop(task_id, None)
        if due is not None and due.timer is not None:
            due.timer.cancel()

    def close(self) -> None:
        """Tell nothing more."""
        for task_id in list(self._due):
            self.drop(task_id)
        for work in self._work:
            work.cancel()

    def _wait(self, due: _Due) -> None:
        self._due[due.row.task_id] = due
        due.timer = asyncio.get_running_loop().call_later(due.pause, self._begin, due)

    def _begin(self, due: _Due) -> None:
        due.timer = None
        work = asyncio.create_task(self._send(due), name="hints of waiting")
        self._work.add(work)
        work.add_done_callback(self._work.discard)

    async def _send(self, due: _Due) -> None:
        task_id, live = due.row.task_id, self.context.active_tasks.get(due.row.task_id)
        if live and live.turns:  # it is told when they have ended
            self._forget(due)
            return
        targets = self._lacking(due.peering, due.own)
        done = all(await asyncio.gather(*(self._hint(due, target) for target in targets)))
        row, first = self.context.active_tasks.row(task_id), self.context.settings.hint_pause
        waits = (row or due.row).state is TaskState.RUNNING
        tries = _MOST_TRIES if waits else _MOST_TRIES_AT_END
        if self._due.get(task_id) is not due:
            return
        if not self._lacking(due.peering, due.own) or (not done and due.tries >= tries):
            self._forget(due)
            return
        due.pause = first if done else min(max(2 * due.pause, first), _LONGEST_PAUSE)
        due.tries = 0 if done else due.tries + 1
        self._wait(due)

    def _forget(self, due: _Due) -> None:
        if self._due.get(due.row.task_id) is due:
            del self._due[due.row.task_id]

    async def _hint(self, due: _Due, target: str) -> bool:
        """Tell one node; return whether that is done with."""
        peering, gateway = due.peering, self.context.outside.gateway
        reports = peering.reports(due.own)
        before = peering.told.get(target, {})
        told = peering.told[target] = {report.node: report.at for report in reports}
        wrapper = self._wrapper(due, target, reports)
        done = gateway is None or wrapper is None
        if gateway is not None and wrapper is not None:
            done = await gateway.hint(swarm_of_node(target), wrapper)
        if not done and peering.told.get(target) is told:
            peering.told[target] = before
        return done

    def _wrapper(
        self, due: _Due, target: str, reports: Sequence[Report]
    ) -> "MAILInterswarmMessage | None":
        context, row, peer = self.context, due.row, swarm_of_node(target)
        contact = due.peering.contacts.get(peer)
        if contact is None:
            return None
        message = context.composer.message(
            "response",
            row.task_id,
            create_agent_address(context.parts.finisher),
            [create_agent_address(contact)],
            "",
            "",
        )
        control = PeerControl(
            "waits", SILENT, (), due.own.node, tuple(each.to_wire() for each in reports)
        )
        return wrap(
            message,
            peer,
            wire_id=wire_task_id(context.owner.role, row.task_id),
            task_owner=row.task_owner,
            contributors=(due.own.node, target),  # which part of the peer is meant
            control=control,
        )

    def _lacking(self, peering: Peering, own: Report) -> list[str]:
        reports = peering.reports(own)
        return [target for target in peering.told if peering.lacks(target, reports)]
