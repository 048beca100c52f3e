"""From composed messages to deliveries in the store, and from committed deliveries to lanes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pydantic_core import to_json

from mail.core.compose import Subject
from mail.core.envelope import Envelope
from mail.core.events import TaskEvent
from mail.core.render import buffered_mail
from mail.core.runtime.active_tasks import ActiveTask, TaskMemory, Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.histories import Entry
from mail.core.runtime.mailbox import LaneKey, QueuedMessage
from mail.core.runtime.policy import local_recipients
from mail.core.runtime.turn import Control, ControlKind, Phase
from mail.core.runtime.turn_result import message_event
from mail.core.tools.call import AgentToolCall
from mail.db.calls import CallRow
from mail.db.desk import LetterRow
from mail.db.records import Delivery, EventRow, HistoryRow, OutboxRow
from mail.traces import noted

_SENDER_TIER: Final[Mapping[str, int]] = {"system": 1, "admin": 2, "user": 2}
_KIND_TIER: Final[Mapping[str, int]] = {
    "interrupt": 3,
    "broadcast_complete": 3,
    "broadcast": 4,
    "request": 5,
    "response": 5,
}


_YOUR_TURN = "It is your turn."  # providers refuse an empty message


def tier_of(envelope: Envelope) -> int:
    """Return a message's priority tier (MAIL-PRIO-1); lower goes first."""
    return _SENDER_TIER.get(envelope.sender["address_type"]) or _KIND_TIER[envelope.kind]


@dataclass(slots=True, eq=False)
class Mail:
    """Messages on their way into a commit: one delivery per recipient, one event per message.

    ``task`` is what is known of their task, as the commit would have it, and ``applied`` is done
    when it is stored. ``outbox`` is what of them goes to other swarms, ``letters`` to participants;
    ``waits`` are calls that wait, or do no more, and ``histories`` has results of calls. They are
    all sent at the same `moment`: when their turn ended, or when they were accepted.
    """

    task: TaskMemory
    applied: list[Callable[[], object]]
    queued_messages: list[QueuedMessage] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    envelopes: list[Envelope] = field(default_factory=list)
    outbox: tuple[OutboxRow, ...] = ()
    letters: tuple[LetterRow, ...] = ()
    waits: tuple[CallRow, ...] = ()
    histories: tuple[HistoryRow, ...] = ()
    _moment: str = ""

    @property
    def moment(self) -> str:
        """The time at which they are sent, taken when it is asked for first."""
        if not self._moment:
            self._moment = self.task.now()
        return self._moment

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to store."""
        return not (self.envelopes or self.events or self.waits or self.queued_messages)


@dataclass(slots=True, eq=False)
class MailDelivery:
    """Expands, stamps and hands out mail."""

    context: RuntimeContext

    def send(
        self,
        mail: Mail,
        envelope: Envelope,
        control: Control | None = None,
        *,
        silent: bool = False,
    ) -> Envelope:
        """Add a message of an agent or the system; return it with the time at which it is sent."""
        sent = envelope.sent_at(mail.moment)
        self.add(mail, sent, control, silent=silent)
        return sent

    def add(
        self,
        mail: Mail,
        envelope: Envelope,
        control: Control | None = None,
        *,
        silent: bool = False,
        to: Sequence[str] | None = None,
    ) -> None:
        """Add a message as it is.

        Args:
            mail: The mail that it is added to.
            envelope: The message.
            control: The system's instruction to the turns that take it.
            silent: Leave out its event.
            to: Its local recipients, where they do not follow from the message alone.
        """
        if self.context.tracer is not None:
            envelope = envelope._replace(routing_info=noted(envelope.routing_info))
        tier = tier_of(envelope)
        payload = envelope.to_json()
        instruction = control.to_json() if control else None
        interrupts = envelope.kind == "interrupt"
        if to is None:
            guests = self.context.parts.participants
            to = local_recipients(envelope, self.context.agents, self.context.swarm, guests)
            self.context.subjects.addressed(mail, envelope)
        for name in to:
            if self.context.subjects.takes(mail, name, envelope, control):
                continue
            delivery = Delivery(envelope.task_id, name, tier, interrupts, payload, instruction)
            mail.queued_messages.append(QueuedMessage(delivery, envelope, control))
        mail.envelopes.append(envelope)
        mail.task.asks.note(envelope, self.context.swarm, self.context.parts.participants)
        if not silent:
            mail.events.append(message_event(payload, mail.moment))

    def instruct(self, mail: Mail, agent: str, control: Control | None) -> None:
        """Have an agent go on with the results of calls, or with another instruction."""
        subject = Subject.ACTION_COMPLETE_BROADCAST
        notice = self.context.composer.notice(mail.task.task_id, agent, subject, "")
        self.send(mail, notice, control or Control(ControlKind.RESUME), silent=True)

    def notify(self, mail: Mail, agent: str, subject: str, body: str, ref: str) -> None:
        """Tell an agent, if it is here, what became of something that it sent."""
        if agent in self.context.agents:
            notice = self.context.composer.notice(mail.task.task_id, agent, subject, body)
            self.send(mail, notice._replace(ref=ref), Control(ControlKind.NOTICE))

    def answer(self, mail: Mail, row: CallRow) -> None:
        """Add the result of a call to its agent's history; the agent sees it when it goes on."""
        made = AgentToolCall.model_validate_json(row.call)
        self.remember(mail, row.agent, made.create_response_msg(row.answer or ""))
        mail.applied.append(partial(self._unblock, row.agent, mail.task.task_id))

    def remember(self, mail: Mail, agent: str, entry: Entry) -> None:
        """Add an entry to an agent's history, outside of its turns."""
        mail.histories += (HistoryRow(agent, to_json([entry]).decode()),)
        mail.applied.append(partial(self._forget, agent, mail.task.task_id))

    def _forget(self, agent: str, task_id: str) -> None:
        task = self.context.active_tasks.get(task_id)
        if task is not None:
            task.fresh = False  # the store knows more of its history than there is here
        self.context.histories.forget(task_id, agent)

    def _unblock(self, agent: str, task_id: str) -> None:
        task = self.context.active_tasks.get(task_id)
        if task is not None and not task.open_waits(agent):
            self.context.mailbox.unblock(LaneKey(task_id, agent))

    def hand_out(self, task: ActiveTask, mail: Mail, seqs: Sequence[int]) -> list[tuple[str, Turn]]:
        """Put committed mail into its lanes; return the turns that it interrupts, and who did it.

        These are abandoned, but their mail is not put back yet.
        """
        interrupted = []
        for queued, seq in zip(mail.queued_messages, seqs, strict=True):
            queued.seq = seq
            turn = task.turns.get(queued.delivery.recipient)
            interrupts = queued.delivery.interrupt and not self.context.status.manual
            if interrupts and turn is not None and turn.phase is Phase.MODEL:
                task.arriving += 1
                self.abandon(turn)
                interrupted.append((queued.envelope.sender["address"], turn))
            self._put(task, queued)
        return interrupted

    def put_back(self, task: ActiveTask, queued: QueuedMessage) -> None:
        """Return a message whose turn did not happen to its old place."""
        task.out.discard(queued.seq)
        self._put(task, queued)

    def open_buffer(self, turn: Turn) -> Entry:
        """Take a manual step's buffered mail; return it and the payload as the agent's entry."""
        if not turn.buffered:
            turn.buffered = self.context.mailbox.take_buffer(turn.queued.lane)
            turn.task.out.update(queued.seq for queued in turn.buffered)
        blocks = [f"{_block(queued.envelope)}\n\n\n" for queued in turn.buffered]
        payload = turn.manual.payload if turn.manual else ""
        text = "".join([*blocks, payload]).rstrip()
        return {"role": "user", "content": text or _YOUR_TURN}

    def unbuffer(self, turn: Turn) -> None:
        """Return the mail of a manual step that did not happen."""
        for queued in turn.buffered:
            if turn.void:  # its task's mail was dropped meanwhile
                turn.task.out.discard(queued.seq)
            else:
                self.put_back(turn.task, queued)
        turn.buffered.clear()

    def _put(self, task: ActiveTask, queued: QueuedMessage) -> None:
        if queued.seq in task.out:
            return  # a refill found it in the store first, and it is being worked on
        if queued.finish and queued is not task.finish and not queued.filed:
            return  # the run that it was to finish has ended
        if task.loaded and task.row.state.is_open:
            self.context.mailbox.put(queued)

    def end_turn(self, turn: Turn, *, put_back: bool = False) -> None:
        """Let go of a turn that stores nothing: its message is gone, or returns to its place."""
        if turn.task.turns.get(turn.agent) is turn:
            del turn.task.turns[turn.agent]
        turn.task.out.discard(turn.seq)
        if put_back:
            self._put(turn.task, turn.queued)
        self.unbuffer(turn)
        self.context.mailbox.release(turn.queued.lane)

    def abandon(self, turn: Turn) -> None:
        """Cancel a turn that has committed nothing; whatever it still returns is dropped.

        Its lane stays busy until the caller releases it.
        """
        turn.abandoned = True
        self.context.status.abandoned += 1
        if self.context.settings.turn_limit is not None:
            self.context.settings.turn_limit.leave()
        turn.task.turns.pop(turn.agent, None)
        if turn.handle is not None and turn.begun:  # what has not begun must clean up after itself
            turn.handle.cancel()

    def delta(self, turn: Turn, kind: str, text: str) -> None:
        """Pass a piece of a running model call to the streams that asked for it."""
        if not self.context.events.wants_deltas(turn.task.task_id):
            return
        self.context.events.delta(
            TaskEvent(
                task_id=turn.task.task_id,
                kind="model_delta",
                timestamp=turn.task.now(),
                extra={"agent": turn.agent, "type": kind, "delta": text},
            )
        )


def _block(mail: Envelope) -> str:
    group = mail.kind == "broadcast" and len(mail.recipients) > 1
    return buffered_mail(mail.sender, mail.recipients, mail.body, group=group)
