"""Mail from other swarms, and what became of mail for them: ``spec/SPEC.md``, chapter 20."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from pydantic_core import from_json

from mail.core.addresses import (
    create_agent_address,
    parse_task_contributor,
    parse_task_contributors,
)
from mail.core.compose import Subject
from mail.core.envelope import Envelope
from mail.core.interswarm import (
    MAX_CONTRIBUTORS,
    DeliveryOutcome,
    PeerControl,
    PeerMail,
    local_task_id,
    runner_name,
    wire_task_id,
)
from mail.core.large import json_line
from mail.core.runtime.active_tasks import ActiveTask, TaskMemory
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.delivery import Mail, MailDelivery
from mail.core.runtime.federation import FederationSubject
from mail.core.runtime.held_calls import UNANSWERED, free_call_id
from mail.core.runtime.ledger import swarm_in
from mail.core.runtime.mailbox import Hold
from mail.core.runtime.peering import with_runner
from mail.core.runtime.recovery import TaskLoader
from mail.core.runtime.submission import RunRequest, Submissions
from mail.core.runtime.transaction import TaskChange, from_outside
from mail.core.runtime.turn_end import TurnEnd
from mail.core.runtime.turn_result import EventDraft
from mail.core.runtime.waiting import node_of, read_reports, swarm_of_node
from mail.core.schema import parse_interswarm_message
from mail.core.tasks import TaskState
from mail.core.tools.call import AgentToolCall
from mail.core.tools.convert import normalize_breakpoint_tool_call
from mail.db.calls import CallRow
from mail.db.commit import Commit
from mail.db.ledger import Question
from mail.db.records import EventRow, InboxRow, OutboxChange, OutboxRow, TaskRow
from mail.errors import (
    MailTaken,
    ProtocolError,
    TaskRunning,
    TaskTaken,
    UnknownAgent,
    UnknownTask,
)
from mail.services.peer_mail import Place, opened

_FOR_AGENTS: Final = ("", "waits")
"""The events of controls that come with messages for agents."""
_MOST_CALLS: Final = 128
"""Of a peer's breakpoint calls so many wait in a task at a time; further ones are not shown."""
_LONGEST_NAME: Final = 256
_DELAYED: Final = (
    "Your message to {to} has not been delivered yet: {reason}. Delivery goes on; you will be told "
    "if it is given up."
)
_UNDELIVERABLE: Final = "Your message to {to} could not be delivered: {reason}"
_UNANSWERED: Final = (
    "Your message to {to} was delivered, but {reason}, so it is not waited for any more. An answer "
    "that comes later is an ordinary message."
)
_OVER: Final = "The task is {state}; your message is kept until it is continued."
_FAILED: Final = {
    "delayed": ("is delayed", ""),
    "undeliverable": ("cannot be delivered", "given_up"),
    "unanswered": ("is not answered", "unanswered"),
}
"""Outcome to the words of its event, and the mark that `Peering.replay` knows it by."""
_NOT_PASSED_ON: Final = "The results for {to} could not be delivered: {reason}"


@dataclass(slots=True, eq=False)
class PeerDoor:
    """Takes mail of other swarms, and the outcomes of mail that goes to them."""

    context: RuntimeContext
    submissions: Submissions
    turn_end: TurnEnd
    federation: FederationSubject
    mail_delivery: MailDelivery
    loader: TaskLoader

    # --- mail that comes ----------------------------------------------------------------------

    def read(self, message: object) -> PeerMail:
        """Return a wrapper as mail for this runtime; its sender is taken at its word.

        Raises:
            ProtocolError: it is not valid, or not for this swarm.
        """
        wrapper, swarm = parse_interswarm_message(message), self.context.swarm
        if wrapper["target_swarm"] != swarm:
            there = wrapper["target_swarm"]
            raise ProtocolError(f"received interswarm message for wrong swarm: '{there}'")
        wire_id, owner = wrapper["payload"]["task_id"], wrapper["task_owner"]
        parse_task_contributors(wrapper["task_contributors"])
        ours, peer = parse_task_contributor(owner).swarm == swarm, wrapper["source_swarm"]
        task_id = wire_id if ours else local_task_id(wire_id, owner)
        opens = peer == self.context.host and not ours
        return opened(wrapper, peer, Place(self.context.owner, task_id, opens))

    @from_outside
    async def take(self, mail: PeerMail) -> str:
        """Store mail of a peer and hand it out.

        Args:
            mail: The mail, whose claims about its sender have been checked.

        Returns:
            The receipt as JSON: the given one, or the first one if the mail has been taken before.

        Raises:
            UnknownTask: there is no such task, and the mail may not open it.
            UnknownAgent: a recipient is not here, or the peer may not reach it.
            ProtocolError: the mail does not fit the task.
            ShuttingDown: no more mail is taken.
            StoreError: it could not be stored.
        """
        if mail.control is not None and mail.control.is_silent:
            return await self._hear(mail)
        event, from_host = _says(mail), mail.peer == self.context.host
        if event == ("paused" if from_host else "results"):  # host and contributor say these
            raise ProtocolError(f"metadata: '{event}' is not for swarm '{mail.peer}' to say")
        task_id, store = mail.envelope.task_id, self.context.store
        try:
            async with self.submissions.hold(task_id, new=True) as task:
                # Nothing that is refused or repeated may cost a look at the task's whole log.
                row = task.row if task.stored else None
                row = row or await store.load_task(self.context.owner, task_id)
                self._check_row(row, mail)
                known = await self._receipt(mail)
                if known is not None:  # before anything is noted of it
                    return known
                if mail.envelope.kind == "request" and event in _FOR_AGENTS:
                    for recipient in mail.envelope.recipients:  # whom it may reach is asked later
                        if recipient["address"] not in ("all", *self.context.agents):
                            raise UnknownAgent(f"no agent '{recipient['address']}' here")
                if row is not None and not task.stored:
                    await self.loader.load(task)
                tells = event not in _FOR_AGENTS or self._is_farewell(task, mail)
                if tells and not task.stored:
                    return mail.receipt  # there is nothing to end here
                await self._act(task, mail)
        except MailTaken:
            return await self._receipt(mail) or mail.receipt
        return mail.receipt

    async def _hear(self, mail: PeerMail) -> str:
        """Take a hint: note what a peer knows of waiting, and store nothing."""
        task_id = mail.envelope.task_id
        async with self.submissions.hold(task_id, new=True, brings_mail=False) as task:
            row = task.row if task.stored else None
            row = row or await self.context.store.load_task(self.context.owner, task_id)
            if row is None:
                raise UnknownTask(task_id)
            self._check_row(row, mail)
            if not task.stored:
                await self.loader.load(task)
            if task.row.state is TaskState.RUNNING and not task.loaded:
                await self.loader.refill(task)
            async with TaskChange(self.context, task, patient=False) as change:
                if mail.control is not None:
                    peering, reports = change.memory.peers(), read_reports(mail.control.reports)
                    peering.hear(node_of(mail.control, mail.peer), reports)
                    peering.closed = False  # somebody waits
                self.federation.last(change)
        return mail.receipt

    def _check_row(self, row: TaskRow | None, mail: PeerMail) -> None:
        """Check that mail fits the row of its task, or may open one."""
        if row is None and (not mail.opens or mail.envelope.kind == "broadcast_complete"):
            raise UnknownTask(mail.envelope.task_id)
        if row is not None and mail.task_owner != row.task_owner:
            wire_id = wire_task_id(self.context.owner.role, row.task_id)
            raise TaskTaken(f"task '{wire_id}' of swarm '{mail.peer}' has another owner")

    async def _receipt(self, mail: PeerMail) -> str | None:
        swarm, message_id = self.context.swarm, mail.envelope.id
        return await self.context.store.find_inbox(swarm, mail.peer, message_id)

    def _is_farewell(self, task: TaskMemory, mail: PeerMail) -> bool:
        """Tell whether a MAIL 1.3.6 server says that a run has ended: it sends no metadata."""
        envelope = mail.envelope
        return (
            mail.control is None
            and envelope.kind == "response"
            and envelope.subject == Subject.TASK_COMPLETE
            and task.asks.find("peer", envelope.ref, peer=mail.peer) is None
        )

    async def _act(self, task: ActiveTask, mail: PeerMail) -> None:
        control, from_host = mail.control, mail.peer == self.context.host
        if self._is_farewell(task, mail):
            control = PeerControl("ended", TaskState.COMPLETED)
        event = control.event if control is not None else ""
        if event == "results" and await self._resume(task, mail, control):
            return
        ends = event == "ended" and from_host and task.row.state.is_open
        if ends and not task.loaded:
            if task.row.state is TaskState.PAUSED:  # what waits for its agents is part of the end
                self.context.mailbox.hold(task.task_id, Hold.FIRM)
            await self.loader.refill(task)
        async with TaskChange(self.context, task, patient=ends) as change:
            commit = self._begin(change, mail)
            if control is not None and event == "ended" and from_host:
                self._end(change, commit, mail, cancelled=control.status == TaskState.CANCELLED)
            elif control is not None and event == "paused":
                self._pause(change, mail, control)
            elif event in (*_FOR_AGENTS, "ended"):
                self._deliver(change, commit, mail, ends=event == "ended")
            else:
                self._tell_received(change, mail)

    def _begin(self, change: TaskChange, mail: PeerMail) -> Commit:
        """Note what mail says of its peer's part; return the commit that takes it."""
        task, memory = change.task, change.memory
        if task.stored:
            self._contribute(memory, mail.peer, mail.contributors)
        else:
            names = with_runner(mail.contributors, str(self.context.owner))
            title, owner = mail.envelope.title, mail.task_owner
            memory.change(title=title, task_owner=owner, task_contributors=names)
        commit = Commit(self.context.owner, memory.row, new=not task.stored)
        change.commit, commit.inbox = commit, self._inbox(mail)
        self._note_taken(memory, mail)
        self.submissions.goes_on(change)
        return commit

    def _note_taken(self, memory: TaskMemory, mail: PeerMail) -> None:
        peering, node = memory.peers(), node_of(mail.control, mail.peer)
        peering.note_taken(mail.peer, node)
        # The swarm that the task belongs to may say that it has ended.
        owner = swarm_of_node(mail.task_owner)
        peering.closed = _says(mail) == "ended" and mail.peer == self.context.host == owner
        if mail.control is not None:
            peering.hear(node, read_reports(mail.control.reports))

    # --- what agents read ---------------------------------------------------------------------

    def _deliver(self, change: TaskChange, commit: Commit, mail: PeerMail, *, ends: bool) -> None:
        """Deliver a message to agents.

        Args:
            change: The change that it belongs to.
            commit: Its commit.
            mail: The message.
            ends: The peer's part in the task has ended with it.
        """
        envelope, memory, packed = mail.envelope, change.memory, change.mail
        peering = memory.peers()
        closed: tuple[CallRow, ...] = ()
        if ends:  # nobody waits for the results of the peer's calls any more
            now, calls = memory.now(), memory.open_calls()
            theirs = (call for call in calls if swarm_in(call.agent) == mail.peer)
            closed = tuple(call.closed(UNANSWERED, now) for call in theirs)
            memory.put(*closed)
        farewell = ends and mail.control is None
        received = self._addressed(memory, mail, farewell=farewell)
        answers = [each for each, _ in received if each.kind == "response"]
        early = []  # tells that requests were sent whose answers come before their receipts
        for answer in answers:
            ask = memory.asks.find("peer", answer.ref, peer=mail.peer)
            if ask is not None and (mail.peer, ask.record) in peering.unsent:
                peering.unsent.discard((mail.peer, ask.record))
                early.append(self._sent(mail.peer, memory.now()))
        for letter, names in received:
            self.mail_delivery.add(packed, letter, to=names)
            peering.note_received(letter)
        over = change.task.stored and not memory.row.state.is_open
        declines = envelope.kind == "request" and over and not memory.is_personal(envelope)
        if declines:
            self._decline(memory, packed, envelope)
        commit.answered = tuple((mail.peer, letter.ref) for letter in answers)
        packed.events[:0] = early
        self._tell_received(change, mail)
        reopened = self._go_on(change, envelope, closed=bool(closed))
        if reopened:
            self.submissions.goes_on(change, reopened=True)
        if memory.is_personal(envelope):
            change.came.add(envelope.id)
        if ends:
            memory.asks.forget(mail.peer)
        if memory.row.state is TaskState.PAUSED:
            change.on_applied(self.context.mailbox.hold, memory.task_id, Hold.FIRM)

    def _addressed(
        self, task: TaskMemory, mail: PeerMail, *, farewell: bool
    ) -> list[tuple[Envelope, list[str]]]:
        """Return what is delivered, and to whom.

        The last words of a MAIL 1.3.6 server name an agent by guess and answer no request: they go
        to the agents that still wait for one of its swarm, or to whom they name if that is here. A
        ``broadcast_complete`` goes to these agents and the entrypoint, as a response.
        """
        envelope, answers = mail.envelope, mail.envelope.kind == "broadcast_complete"
        waiting = task.asks.waited("peer", peer=mail.peer) if farewell or answers else ()
        told = [(ask.ref, ask.asker) for ask in waiting]
        if answers and self.context.parts.entrypoint not in [name for _, name in told]:
            told.append((envelope.ref, self.context.parts.entrypoint))
        found = []
        for ref, name in told:
            to = create_agent_address(name)
            if name in self.context.agents:
                found.append(
                    (envelope._replace(kind="response", ref=ref, recipients=(to,)), [name])
                )
        if found:
            return found
        try:
            return [(envelope, self._reached(task, mail))]
        except UnknownAgent:
            if farewell:
                return []
            raise

    def _reached(self, task: TaskMemory, mail: PeerMail) -> list[str]:
        """Return the local agents that mail of a peer goes to.

        Raises:
            UnknownAgent: one is not here, or does not hear of that peer.
        """
        agents, exposed = self.context.agents, self.context.settings.exposed
        reach = {
            name
            for name, agent in agents.items()
            if (
                name == self.context.parts.entrypoint
                or agent.enable_entrypoint
                or agent.enable_interswarm
            )
            and (exposed is None or name in exposed)
        }
        part = task.peering.writers.get(mail.peer, set()) if task.peering else set()
        names: dict[str, None] = {}
        for recipient in mail.envelope.recipients:
            name = recipient["address"]
            if name == "all" and recipient["address_type"] == "agent":
                names.update(dict.fromkeys(one for one in agents if one in reach))
            elif recipient["address_type"] == "agent" and name in agents and name in reach | part:
                names[name] = None
            else:
                raise UnknownAgent(f"no agent '{name}' here")
        if not names:
            raise UnknownAgent("the message has no recipient here")
        return list(names)

    def _decline(self, task: TaskMemory, packed: Mail, envelope: Envelope) -> None:
        """Answer a request that will not be read before the task is continued."""
        agent = envelope.recipients[0]["address"]
        here = agent if agent in self.context.agents else self.context.parts.finisher
        answer = self.context.composer.message(
            "response",
            task.task_id,
            create_agent_address(here),
            [envelope.sender],
            Subject.TASK_COMPLETE,
            _OVER.format(state=task.row.state),
            ref=envelope.ref,
            timestamp=packed.moment,
        )
        self.federation.send(packed, answer, PeerControl("ended", task.row.state))

    def _go_on(self, change: TaskChange, envelope: Envelope, *, closed: bool) -> bool:
        """Set the state in which a message finds or opens its task; tell whether a run begins.

        Args:
            change: The change that it belongs to.
            envelope: The message.
            closed: Whether calls were closed with it, which nobody waits for any more.
        """
        stored, memory = change.task.stored, change.memory
        before = memory.row.state
        if not stored or (memory.is_personal(envelope) and before is not TaskState.PAUSED):
            joins = stored and before is TaskState.RUNNING
            asks = envelope.kind == "request"
            request = RunRequest(message=envelope, awaited=asks and memory.is_personal(envelope))
            self.submissions.reopen(change, request, joins=joins)
        elif before is TaskState.PAUSED and closed and not memory.open_calls():
            memory.change(state=TaskState.RUNNING)
            memory.pausing = False
            return True
        return False

    # --- what the runtime reads ---------------------------------------------------------------

    def _end(self, change: TaskChange, commit: Commit, mail: PeerMail, *, cancelled: bool) -> None:
        """End the run here, because the swarm whose task it is has ended it."""
        self._tell_received(change, mail)
        if change.memory.row.state.is_open:
            commit.cancel_mail = cancelled
            asks, endings = change.memory.asks, self.turn_end.endings
            for question in asks.waited("for_peer", peer=change.memory.host):
                asks.release(question)  # no answer is expected
            if cancelled:
                endings.cancel(change)
            else:
                settled, told = endings.drop_people(change), "the task was completed elsewhere"
                endings.complete(change, told, everybody=True, settled=settled)
            self.turn_end.finish(change)

    def _pause(self, change: TaskChange, mail: PeerMail, control: PeerControl) -> None:
        """Show the breakpoint calls of a peer's agents as the task's own."""
        self._tell_received(change, mail)
        memory = change.memory
        rows = self._surfaced(memory, mail, control) if memory.row.state.is_open else []
        if not rows:
            return
        names = ", ".join(str(from_json(row.shown)["name"]) for row in rows)
        told = EventDraft(
            "breakpoint_tool_call",
            f"agent {rows[0].agent} used breakpoint tools {names}",
            {"caller": rows[0].agent, "call_ids": [row.call_id for row in rows]},
        )
        change.mail.events.append(told.row(memory.now()))
        memory.put(*rows)
        self.turn_end.endings.hold(change)

    def _surfaced(self, task: TaskMemory, mail: PeerMail, control: PeerControl) -> list[CallRow]:
        """Return the rows of a peer's open calls that are not known yet."""
        agent = mail.envelope.sender["address"]
        open_calls = [call for call in task.open_calls() if swarm_in(call.agent) == mail.peer]
        known = {AgentToolCall.model_validate_json(call.call).tool_call_id for call in open_calls}
        taken = {call.call_id for call in task.calls.values()}
        rows: list[CallRow] = []
        for told in control.calls:
            if len(open_calls) + len(rows) >= _MOST_CALLS:
                break
            there, name = told.get("call_id"), told.get("name")
            if not _is_short(there) or not _is_short(name) or there in known:
                continue
            known.add(there)
            call_id = free_call_id(there, taken)
            taken.add(call_id)
            # Nobody needs the arguments to answer the call.
            made = AgentToolCall(
                tool_name=name,
                tool_args={},
                tool_call_id=there,
                completion={"role": "assistant", "content": None},
            )
            given = told.get("arguments")  # they only serve to be shown again
            given = given if isinstance(given, str) else "{}"
            item = {"arguments": given, "id": call_id, "call_id": call_id}
            shown = json_line(normalize_breakpoint_tool_call(made, item))
            rows.append(CallRow(agent, call_id, made.model_dump_json(), shown))
        return rows

    async def _resume(self, task: ActiveTask, mail: PeerMail, control: PeerControl | None) -> bool:
        """Give agents the results that the caller of the peer's task has given, if any."""
        waiting = {call.call_id for call in task.asked_calls() if call.kind != "approval"}
        results = [
            {"call_id": told["call_id"], "content": told.get("content", "")}
            for told in (control.calls if control else ())
            if isinstance(told.get("call_id"), str) and told["call_id"] in waiting
        ]
        if not task.row.state.is_open or not results:
            return False
        request = RunRequest(
            message=mail.envelope, awaited=False, breakpoint_tool_call_result=results
        )
        async with TaskChange(self.context, task, patient=False) as change:
            commit = self.submissions.resume(change, request)
            self._note_taken(change.memory, mail)
            commit.inbox = self._inbox(mail)
            self._tell_received(change, mail, first=True)
        return True

    # --- its parts ----------------------------------------------------------------------------

    def _contribute(self, task: TaskMemory, peer: str, names: Sequence[str]) -> None:
        """Note the parts that a peer has in the task: for swarms that are known to take part.

        A MAIL 1.3.6 peer may know us by another id, so the first part is taken by its word.
        """
        known = task.row.task_contributors
        own = [name for name in names if swarm_of_node(name) == peer]
        swarms = {self.context.swarm, *map(swarm_of_node, known)}
        allowed = {runner_name(swarm, peer) for swarm in swarms}
        new = [name for name in own if name in allowed]
        if not new and all(swarm_of_node(name) != peer for name in known):
            new = [name for name in own if len(name) <= _LONGEST_NAME][:1]
        merged = tuple(dict.fromkeys((*known, *new)))
        if len(known) < len(merged) <= MAX_CONTRIBUTORS:
            task.change(task_contributors=merged)

    def _inbox(self, mail: PeerMail) -> InboxRow:
        return InboxRow(mail.peer, mail.envelope.id, mail.receipt, self.context.clock.now())

    def _tell_received(self, change: TaskChange, mail: PeerMail, *, first: bool = False) -> None:
        """Tell in an event that a message came, before or behind the others."""
        envelope, events = mail.envelope, change.mail.events
        told: dict[str, Any] = {"swarm": mail.peer, "full_message": envelope.to_wire()}
        node = node_of(mail.control, mail.peer)
        if node and mail.control is not None:
            told["runner"] = node
            if mail.control.reports:
                told["reports"] = [each.to_wire() for each in read_reports(mail.control.reports)]
        text = f"received a {envelope.kind} of {envelope.sender['address']}"
        event = EventDraft("interswarm_message_received", text, told).row(change.mail.moment)
        events.insert(0 if first else len(events), event)

    def _sent(self, peer: str, moment: str) -> EventRow:
        told = EventDraft("interswarm_message_sent", f"swarm {peer} took mail", {"swarm": peer})
        return told.row(moment)

    # --- mail that went -----------------------------------------------------------------------

    @from_outside
    async def settle(self, row: OutboxRow, outcome: DeliveryOutcome) -> None:
        """Store what became of mail for a peer, and tell the agent that sent it what it must know.

        Doing it again changes nothing.

        Args:
            row: The mail. After a delay, ``attempts`` and ``next_at`` are stored as they are here;
                ``told`` is as it was before.
            outcome: The outcome of its delivery.

        Raises:
            ShuttingDown: the runtime takes no more work.
            StoreError: it could not be stored.
        """
        brings_mail = outcome.state != "delivered"
        try:
            async with self.submissions.hold(
                row.task_id, new=False, brings_mail=brings_mail
            ) as task:
                if outcome.state == "unanswered":
                    await self._stop_waiting(task, row, outcome)
                elif (row.peer, row.message_id) in task.peers().unsent or await self._is_stored(
                    row, "waiting"
                ):
                    await self._settle_in(task, row, outcome)
        except (UnknownTask, TaskRunning):
            return  # it was deleted, or is being so, and its mail with it

    async def _is_stored(self, row: OutboxRow, state: str) -> bool:
        rows = await self.context.store.task_outbox(self.context.owner, row.task_id)
        return any(one.id == row.id and one.state == state for one in rows)

    async def _stop_waiting(
        self, task: ActiveTask, row: OutboxRow, outcome: DeliveryOutcome
    ) -> None:
        """Close a request that has no answer, unless the task waits for its own caller."""
        async with TaskChange(self.context, task, patient=False) as change:
            if change.memory.row.state is TaskState.PAUSED:
                return
            if not await self._is_stored(row, "delivered"):
                return
            mail = change.mail
            mail.events.append(self._error(row, outcome, mail.moment))
            if row.sender:
                body = _UNANSWERED.format(to=_addressed_to(row), reason=outcome.reason)
                self.mail_delivery.notify(mail, row.sender, Subject.UNDELIVERABLE, body, row.ref)
            question = change.memory.asks.find("peer", row.ref, peer=row.peer)
            if question is not None:
                change.memory.asks.close(question)
            change.commit = Commit(self.context.owner, task.row)
            change.commit.outbox_changes = (OutboxChange(row.id, "done"),)
            self.submissions.goes_on(change)

    async def _settle_in(self, task: ActiveTask, row: OutboxRow, outcome: DeliveryOutcome) -> None:
        if row.told and outcome.state == "delayed":
            return
        async with TaskChange(self.context, task, patient=False) as change:
            memory, peering = change.memory, change.memory.peers()
            settled, lost = self._outcome(memory, change.mail, row, outcome)
            commit = change.commit = Commit(
                self.context.owner, memory.row, outbox_changes=(settled,)
            )
            commit.answered = tuple((row.peer, question.ref) for question in lost)
            if outcome.state != "delayed":
                peering.unsent.discard((row.peer, row.message_id))
            if outcome.state == "undeliverable":
                peering.sent[row.peer] -= 1
                asked = memory.asks.find("peer", row.ref, peer=row.peer)
                lost += [asked] if asked is not None and asked not in lost else []
            for question in lost:
                memory.asks.close(question)
            if memory.row.state is TaskState.PAUSED:
                change.on_applied(self.context.mailbox.hold, task.task_id, Hold.FIRM)
            self.submissions.goes_on(change)

    def _outcome(
        self, task: TaskMemory, mail: Mail, row: OutboxRow, outcome: DeliveryOutcome
    ) -> tuple[OutboxChange, list[Question]]:
        """Pack what is told of an outcome; return what becomes of the row, and requests lost."""
        if outcome.state == "delivered":
            question = task.asks.find("peer", row.ref, peer=row.peer)
            mail.events.append(self._sent(row.peer, mail.moment))
            self._contribute(task, row.peer, [outcome.runner])
            awaited = row.kind == "request" and question is not None
            return OutboxChange(row.id, "delivered" if awaited else "done"), []
        change = OutboxChange(
            row.id, "waiting", row.attempts, row.next_at, outcome.reason, told=True
        )
        if outcome.state == "undeliverable":
            change = change._replace(state="dead")
        mail.events.append(self._error(row, outcome, mail.moment))
        return change, self._tell_sender(task, mail, row, outcome)

    def _tell_sender(
        self, task: TaskMemory, mail: Mail, row: OutboxRow, outcome: DeliveryOutcome
    ) -> list[Question]:
        """Pack what agents are told of mail that does not arrive; return requests lost with it.

        When results for a peer's calls cannot be delivered, its answers will not come either.
        """
        to = _addressed_to(row)
        gone = outcome.state == "undeliverable"
        if row.sender and not gone and not task.row.state.is_open:
            return []  # by the time somebody continues the task, this is old news
        if row.sender:
            subject = Subject.UNDELIVERABLE if gone else Subject.DELIVERY_DELAYED
            body = (_UNDELIVERABLE if gone else _DELAYED).format(to=to, reason=outcome.own_reason)
            self.mail_delivery.notify(mail, row.sender, subject, body, row.ref)
            return []
        control = PeerControl.from_metadata(from_json(row.wrapper).get("metadata"))
        if not gone or control is None or control.event != "results":
            return []
        lost = task.asks.waited("peer", peer=row.peer)
        for ask in lost:
            body = _NOT_PASSED_ON.format(to=to, reason=outcome.own_reason)
            self.mail_delivery.notify(mail, ask.asker, Subject.UNDELIVERABLE, body, ask.ref)
        return lost

    def _error(self, row: OutboxRow, outcome: DeliveryOutcome, moment: str) -> EventRow:
        what, mark = _FAILED[outcome.state]
        told: dict[str, Any] = {"swarm": row.peer, "message_id": row.message_id}
        told["reason"] = outcome.reason
        if mark:
            told[mark] = True
        text = f"mail for swarm {row.peer} {what}: {outcome.reason}"
        return EventDraft("interswarm_message_error", text, told).row(moment)


def _says(mail: PeerMail) -> str:
    return mail.control.event if mail.control else ""


def _addressed_to(row: OutboxRow) -> str:
    """Return the agents that mail is for, as text."""
    payload = from_json(row.wrapper)["payload"]
    recipients = payload["recipients"] if "recipients" in payload else [payload["recipient"]]
    return ", ".join(one["address"] for one in recipients)


def _is_short(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME
