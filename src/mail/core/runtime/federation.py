"""Federation: what mail of other swarms adds to the changes of a task: ``spec/SPEC.md``, ch. 20.

Mail for agents elsewhere goes into the outbox; the end of a run answers the swarms that wait. When
nothing goes on in a task, other nodes are told of that by mail that goes anyway, and by hints; for
what these say see `waiting`. `peer_mail` is where their mail comes in.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pydantic_core import from_json, to_json

from mail.core.addresses import MAILAddress, create_agent_address, parse_agent_address
from mail.core.compose import Subject, derived_id
from mail.core.envelope import Envelope
from mail.core.interswarm import MAX_CONTRIBUTORS, SILENT, PeerControl, wire_task_id, wrap
from mail.core.runtime.active_tasks import ActiveTask, Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.delivery import Mail, MailDelivery
from mail.core.runtime.endings import Endings
from mail.core.runtime.ledger import swarm_in
from mail.core.runtime.peering import Peering, remote_swarms, swarm_of, with_reports, with_runner
from mail.core.runtime.subjects import TaskSubject
from mail.core.runtime.transaction import Ending, TaskChange
from mail.core.runtime.turn_result import TurnResult
from mail.core.runtime.waiting import Report, acting, stuck, swarm_of_node, wait_cycle
from mail.core.tasks import TaskState
from mail.db.commit import Commit
from mail.db.ledger import LedgerPart
from mail.db.records import OutboxRow, TaskRow
from mail.traces import noted

if TYPE_CHECKING:
    from mail.core.wire import MAILInterswarmMessage

_TOLD: Final = {
    TaskState.COMPLETED: Subject.TASK_COMPLETE,
    TaskState.FAILED: Subject.TASK_ERROR,
    TaskState.CANCELLED: Subject.TASK_CANCELLED,
}
_LONGEST_PAUSE: Final = 300.0
_MOST_TRIES: Final = 300
_MOST_TASKS: Final = 1024
_MOST_TRIES_AT_END: Final = 12
"""Of a part that has ended, and that nothing brings back to memory but mail."""


@dataclass(slots=True, eq=False)
class FederationSubject(TaskSubject):
    """Sends mail to other swarms, and tells them how the task goes on here."""

    context: RuntimeContext
    mail_delivery: MailDelivery
    endings: Endings
    hints: "WaitHints"

    # --- mail for other swarms ----------------------------------------------------------------

    def addressed(self, mail: Mail, envelope: Envelope) -> None:
        """Send a message of an agent to those of its recipients that are elsewhere."""
        if self.context.outside.gateway is None or envelope.sender_swarm != self.context.swarm:
            return
        self._send(mail, envelope, None, by_runtime=False)

    def send(self, mail: Mail, envelope: Envelope, control: PeerControl | None = None) -> None:
        """Add a message of the runtime itself, in an agent's name, to agents of other swarms."""
        self._send(mail, envelope, control, by_runtime=True)
        self.mail_delivery.add(mail, envelope, to=())

    def _send(
        self, mail: Mail, envelope: Envelope, control: PeerControl | None, *, by_runtime: bool
    ) -> None:
        """Add a message's mail for other swarms, a row for each of them.

        No agent hears what becomes of mail ``by_runtime``.
        """
        if self.context.tracer is not None:
            envelope = envelope._replace(routing_info=noted(envelope.routing_info))
        task, owner, rows = mail.task, self.context.owner, []
        contributors = with_runner(task.row.task_contributors, str(owner))
        for peer in remote_swarms(envelope, owner.swarm):
            # It is told of its own nodes that have written: it may have several parts in the task.
            told = task.peering.told if task.peering else ()
            nodes = (node for node in told if swarm_of_node(node) == peer)
            names = tuple(dict.fromkeys((*contributors, *nodes)))[:MAX_CONTRIBUTORS]
            wrapper = wrap(
                envelope,
                peer,
                wire_id=wire_task_id(owner.role, task.task_id),
                task_owner=task.row.task_owner,
                contributors=names,
                control=(control or PeerControl())._replace(runner=str(owner)),
            )
            rows.append(
                OutboxRow(
                    task_id=task.task_id,
                    peer=peer,
                    message_id=envelope.id,
                    sender="" if by_runtime else envelope.sender["address"],
                    kind=envelope.kind,
                    ref=envelope.ref,
                    wrapper=to_json(wrapper).decode(),
                    created_at=mail.moment,
                )
            )
        if not rows:
            return
        peering = task.peers()
        peering.note_sent(envelope)
        peering.unsent.update((row.peer, row.message_id) for row in rows)
        there = dict.fromkeys((*task.row.remote_swarms, *(row.peer for row in rows)))
        if len(there) > len(task.row.remote_swarms):
            task.change(remote_swarms=tuple(there))
        mail.outbox += tuple(rows)

    def answered(self, mail: Mail, agent: str, results: Sequence[dict[str, str]]) -> None:
        """Send an agent of another swarm the results of its calls."""
        message = self.context.composer.message(
            "response",
            mail.task.task_id,
            create_agent_address(self.context.parts.finisher),
            [create_agent_address(agent)],
            Subject.BREAKPOINT_TOOL_CALL,
            to_json(results).decode(),
            timestamp=mail.moment,
        )
        self.send(mail, message, PeerControl("results", calls=tuple(results)))

    def failed(self, change: TaskChange, turn: Turn, reason: str) -> bool:
        """Tell an agent of another swarm, if it is one, that its request cannot be answered."""
        origin = turn.origin
        if self.context.outside.gateway is None or origin is None:
            return False
        asker: MAILAddress = {"address_type": "agent", "address": origin.address}
        if origin.address_type != "agent" or not swarm_of(asker):
            return False
        if origin.ref in change.memory.asks.refs(origin.address, turn.agent):
            answer = self.context.composer.message(
                "response",
                turn.task.task_id,
                create_agent_address(turn.agent),
                [asker],
                Subject.AGENT_ERROR,
                f"Agent '{turn.agent}' failed and cannot answer your message: {reason}",
                ref=origin.ref,
                message_id=turn.next_id(),
            )
            self.mail_delivery.send(change.mail, answer)
        return True

    def collected(self, change: TaskChange, commit: Commit) -> None:
        """Add what is known of other swarms to a commit, if that changes; wake the gateway."""
        memory, known = change.memory, change.task.peering
        if memory.peering is None:
            return
        if change.ending is not None and not memory.row.state.is_open:
            commit.close_requests = True
        first = commit.ledger is not None and commit.ledger.first
        if first or known is None or not memory.peering.is_as(known):
            ledger = commit.ledger or LedgerPart()
            commit.ledger = ledger._replace(peering=memory.peering.to_json())
        gateway = self.context.outside.gateway
        if gateway is not None and commit.outbox:
            change.on_applied(gateway.wake, {row.peer for row in commit.outbox})

    # --- the end of a run ---------------------------------------------------------------------

    def ended(self, change: TaskChange, ending: Ending) -> None:
        """Answer what the host is owed; tell the others when the task is over."""
        task, peering, unread = change.memory, change.memory.peering, change.unread
        if peering is None:
            return
        message, status = ending.message, ending.result.status
        if status is TaskState.PAUSED:
            self._tell_pause(change, message)
            return
        goes_on = task.row.state.is_open
        if goes_on and not task.host:
            return
        control = None if goes_on else PeerControl("ended", status.value)
        told = message._replace(subject=_TOLD[status])
        answered: set[str] = set()
        for ask in task.asks.waited("for_peer"):
            if ending.everybody or ask.record not in unread:
                asked = f"{self.context.owner}/{task.task_id}/{ask.asker}/{ask.record}"
                self._tell(change, told, ask.asker, ask.ref, derived_id(asked), control)
                answered.add(swarm_in(ask.asker))
        if goes_on:
            return
        for peer in task.row.remote_swarms:
            if peer == task.host or peer not in peering.contacts:
                continue
            # An answer goes to the part that has asked, which need not be the one opened from here.
            parts = [name for name in task.row.task_contributors if swarm_of_node(name) == peer]
            if peer not in answered or len(parts) > 1:
                name = derived_id(f"{message.id}/{peer}")
                self._tell(change, told, peering.contacts[peer], name, name, control)
        task.asks.end(unread)

    def _tell_pause(self, change: TaskChange, message: Envelope) -> None:
        """Show the host the open calls: the results come from its own caller."""
        task, peering = change.memory, change.memory.peering
        # Held calls are answered here: the host waits for them as for anything that takes long.
        calls = [call for call in task.open_calls() if call.kind != "approval"]
        if peering is None or not task.host or not calls:
            return
        asked = [ask.asker for ask in task.asks.waited("for_peer")]
        to = asked[0] if asked else peering.contacts.get(task.host)
        if to is None:
            return
        name = derived_id(f"{message.id}/{task.host}")  # not the request's: it is not answered yet
        control = PeerControl("paused", calls=tuple(from_json(call.shown) for call in calls))
        agents = [call.agent for call in calls if call.agent in self.context.agents]
        self._tell(change, message, to, name, name, control, agents[0] if agents else "")

    def _tell(
        self,
        change: TaskChange,
        told: Envelope,
        to: str,
        ref: str,
        message_id: str,
        control: PeerControl | None,
        agent: str = "",
    ) -> None:
        answer = self.context.composer.message(
            "response",
            told.task_id,
            create_agent_address(agent or self.context.parts.finisher),
            [create_agent_address(to)],
            told.subject,
            told.body,
            ref=ref,
            message_id=message_id,
            timestamp=change.mail.moment,
        )
        swarm = parse_agent_address(to)[1]
        if swarm is not None:
            answer = answer._replace(recipient_swarms=(swarm,))
        self.send(change.mail, answer, control)

    # --- waiting ------------------------------------------------------------------------------

    def watches(self, task: ActiveTask) -> bool:
        """Tell whether other swarms may have to hear that nothing goes on here."""
        return task.peering is not None

    def idle(self, change: TaskChange) -> bool:
        """Ask for the end of a task that waits in vain, if that is for this swarm to do.

        Of all that wait in vain only one acts; the others get mail from what it does then.
        """
        if not change.memory.asks.waits("peer"):
            return False
        own = change.memory.report(str(self.context.owner), owed=change.is_owed)
        reports = stuck(own, change.memory.peers().known)
        if reports and self._rests(change) and acting(reports) == own.node:
            cycle = wait_cycle([pair for report in reports for pair in report.asks])
            self.endings.rouse(change, cycle)
        return True

    def last(self, change: TaskChange, turn_result: TurnResult | None = None) -> None:
        """Let mail of a change, and hints, tell other swarms if nothing goes on here with it."""
        peering, mail = change.memory.peering, change.mail
        if peering is None or not self._rests(change):
            return
        own = peering.latest(change.memory.report(str(self.context.owner), owed=change.is_owed))
        reports, told = peering.reports(own), list(mail.outbox)
        # The last mail for each swarm takes the reports along.
        for peer, number in {row.peer: number for number, row in enumerate(told)}.items():
            told[number] = with_reports(told[number], reports)
            change.on_applied(change.memory.peers().rides, peer, reports)
        mail.outbox = tuple(told)
        change.on_applied(self.hints.tell, change.task, own)

    def _rests(self, change: TaskChange) -> bool:
        """Tell whether only mail of other swarms can make anything happen after a change."""
        task, memory, mail = change.task, change.memory, change.mail
        if change.others or task.arriving or change.unread or mail.queued_messages:
            return False
        if self.context.subjects.awaits(change):
            return False
        if memory.row.state.is_open:
            waits = task.loaded and memory.row.state is TaskState.RUNNING and change.ending is None
            return waits and not self.context.mailbox.waiting(task.task_id)
        return bool(memory.host and memory.peering and not memory.peering.closed)


@dataclass(slots=True, eq=False)
class _Due:
    """A report that is to be told of a task in which nothing goes on, and the work on that."""

    row: TaskRow
    peering: Peering
    own: Report
    work: "asyncio.Task[None] | None" = None


@dataclass(slots=True, eq=False)
class WaitHints:
    """Tells other nodes of reports that they do not know, while a wait lasts.

    A wait that is over soon costs nothing: the first hint goes after a pause. One that does not
    arrive is sent again after pauses that double.
    """

    context: RuntimeContext
    _due: dict[str, _Due] = field(default_factory=dict)

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
        waiting = self._due.get(task.task_id)
        if waiting is not None:
            peering.learn(waiting.peering)
        heard, peering.news = peering.news, False
        if not self._lacking(peering, own):
            self.drop(task.task_id)
            return
        if waiting is not None and waiting.peering is peering and not heard:
            waiting.row, waiting.own = task.row, own
        elif waiting is not None or len(self._due) < _MOST_TASKS:
            self.drop(task.task_id)
            due = self._due[task.task_id] = _Due(task.row, peering, own)
            telling = self._tell(due, 0.0 if heard else self.context.settings.hint_pause)
            due.work = asyncio.create_task(telling, name="hints of waiting")

    def drop(self, task_id: str) -> None:
        """Tell no more of a task."""
        due = self._due.pop(task_id, None)
        if due is not None and due.work is not None:
            due.work.cancel()

    def close(self) -> None:
        """Tell nothing more."""
        for task_id in list(self._due):
            self.drop(task_id)

    async def _tell(self, due: _Due, pause: float) -> None:
        task_id, first, tries = due.row.task_id, self.context.settings.hint_pause, 0
        while True:
            await asyncio.sleep(pause)
            live = self.context.active_tasks.get(task_id)
            targets = self._lacking(due.peering, due.own)
            if not targets or (live and live.turns):  # it is told when these have ended
                break
            done = all(await asyncio.gather(*(self._hint(due, target) for target in targets)))
            row = self.context.active_tasks.row(task_id) or due.row
            most = _MOST_TRIES if row.state is TaskState.RUNNING else _MOST_TRIES_AT_END
            if not done and tries >= most:
                break
            pause = first if done else min(max(2 * pause, first), _LONGEST_PAUSE)
            tries = 0 if done else tries + 1
        if self._due.get(task_id) is due:
            del self._due[task_id]

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
