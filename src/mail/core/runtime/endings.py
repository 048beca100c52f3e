"""How a run ends: completed, paused, failed or cancelled; one terminal event each (MAIL-EVT-4)."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json, to_json

from mail.clock import format_uuid
from mail.core.addresses import create_agent_address, parse_agent_address
from mail.core.compose import Subject
from mail.core.envelope import Envelope
from mail.core.interswarm import PeerControl
from mail.core.runtime.active_tasks import TaskMemory, Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.correspondence import message_id_for, owner_name, plain
from mail.core.runtime.delivery import Mail, MailDelivery
from mail.core.runtime.held_calls import UNANSWERED
from mail.core.runtime.ledger import swarm_in
from mail.core.runtime.offers import take_back
from mail.core.runtime.peering import swarm_of
from mail.core.runtime.teams import end_of_waits
from mail.core.runtime.transaction import Ending, TaskChange
from mail.core.runtime.turn import Phase
from mail.core.runtime.turn_result import message_event
from mail.core.runtime.waiters import RunResult
from mail.core.tasks import STEP_LIMIT, TaskState
from mail.core.tools.call import AgentToolCall
from mail.core.tools.offer import NO_OFFER
from mail.db.calls import CallRow
from mail.db.desk import LetterRow
from mail.db.ledger import Question
from mail.db.records import EventRow, HistoryRow

_TOLD: Final = {
    TaskState.COMPLETED: Subject.TASK_COMPLETE,
    TaskState.FAILED: Subject.TASK_ERROR,
    TaskState.CANCELLED: Subject.TASK_CANCELLED,
}
_CUT_OFF: Final = "ERROR: the task was cancelled while this call ran; its outcome is unknown"
_SETTLED: Final = "Nobody answers this broadcast. It was:"
_OPEN: Final = (TaskState.RUNNING, TaskState.PAUSED)


@dataclass(slots=True, eq=False)
class Endings:
    """Builds the endings of changes and hands them to the waiting callers."""

    context: RuntimeContext
    mail_delivery: MailDelivery

    def complete(self, change: TaskChange, turn: Turn, answer: str) -> Ending:
        """The task is answered. Users' mail that still waits keeps it running (MAIL-TASK-11)."""
        return self.complete_as(
            change, turn.agent, answer, Subject.TASK_COMPLETE, at_limit=turn.at_limit
        )

    def complete_as(
        self, change: TaskChange, agent: str, answer: str, subject: str, *, at_limit: bool
    ) -> Ending:
        """End a task with an answer in an agent's name."""
        task, sender = change.memory, create_agent_address(agent)
        message = self.context.composer.completion(
            task.task_id, sender, answer, subject, task.now()
        )
        return self._ending(change, message, TaskState.COMPLETED, by=agent, at_limit=at_limit)

    def complete_quietly(self, change: TaskChange) -> Ending:
        """End a task in which nothing happens any more and nobody waits for an answer."""
        return self._end(change, Subject.TASK_COMPLETE, "nothing is left to do")

    def settle(self, change: TaskChange, handled: Mapping[str, str]) -> Ending:
        """Everybody has acknowledged or ignored what came: the caller hears who did what."""
        told = [_SETTLED, *(f"- {agent}: {done}" for agent, done in sorted(handled.items()))]
        return self._end(change, Subject.BROADCAST_SETTLED, "\n".join(told))

    def end_for_host(self, change: TaskChange, *, cancelled: bool) -> Ending:
        """The swarm whose task it is has ended it: its mail is void, and it expects no answer."""
        asks = change.memory.asks
        for question in asks.waited("for_peer", peer=change.memory.host):
            asks.release(question)
        if cancelled:
            return self.cancel(change)
        settled = self._drop_people(change)
        told = "the task was completed elsewhere"
        return self._end(change, Subject.TASK_COMPLETE, told, everybody=True, settled=settled)

    def pause(self, change: TaskChange) -> Ending:
        """The task waits for the results of its open breakpoint calls."""
        task = change.memory
        texts = [call.shown for call in task.asked_calls()]
        message = self.context.composer.system_completion(
            task.task_id, Subject.BREAKPOINT_TOOL_CALL, f"[{', '.join(texts)}]", task.now()
        )
        task.change(state=TaskState.PAUSED, awaited=False, finish_asked=False)
        task.pausing = False
        return self._ending(change, message, TaskState.PAUSED, everybody=True)

    def fail(
        self, change: TaskChange, reason: str, *, over_budget: bool = False, at_limit: bool = False
    ) -> Ending:
        """The run cannot be finished; the reason goes to the caller (MAIL-TURN-17).

        A task over its budget goes on for nobody: every caller gets the reason, and with it the
        answer to users' mail that waits. The mail between agents is kept.
        """
        task, settled = change.memory, self._drop_people(change) if over_budget else ()
        message = self.context.composer.system_completion(
            task.task_id, Subject.TASK_ERROR, reason, task.now()
        )
        return self._ending(
            change,
            message,
            TaskState.FAILED,
            reason=reason,
            everybody=over_budget,
            over_budget=over_budget,
            at_limit=at_limit,
            settled=settled,
        )

    def cancel(self, change: TaskChange) -> Ending:
        """The owner cancelled the task; all of its mail is dropped."""
        reason, task = "the task was cancelled", change.memory
        message = self.context.composer.system_completion(
            task.task_id, Subject.TASK_CANCELLED, reason, task.now()
        )
        change.read |= change.task.people
        return self._ending(change, message, TaskState.CANCELLED, reason=reason, everybody=True)

    def _end(self, change: TaskChange, subject: str, told: str, **more: Any) -> Ending:
        """End a task with words of the system's."""
        task = change.memory
        message = self.context.composer.system_completion(task.task_id, subject, told, task.now())
        return self._ending(change, message, TaskState.COMPLETED, **more)

    def announce(self, change: TaskChange, ending: Ending) -> None:
        """Tell streams where they end, and callers how, once it is stored.

        Whose end it is must follow from the log alone: that is where repeats find it.
        """
        task, last_event = change.task, change.last_event
        due = [
            waiter
            for waiter in task.waiters
            if 0 < waiter.began <= last_event
            and (ending.everybody or waiter.consumed)
            and waiter.message_id not in ending.unanswered
        ]
        for waiter in due:
            waiter.end_at(last_event)
            waiter.leave()
            waiter.resolve(ending.result)

    def _drop_people(self, change: TaskChange) -> tuple[int, ...]:
        """Take back users' mail that nobody has read yet; return its numbers."""
        task = change.memory
        change.read |= change.task.people
        waiting = self.context.mailbox.queued_messages(task.task_id)
        return tuple(mail.seq for mail in waiting if task.is_personal(mail.envelope))

    def _settle_row(self, change: TaskChange, state: TaskState, *, at_limit: bool) -> None:
        task, goes_on = change.memory, bool(change.unread) and not self.context.status.manual
        task.pausing, task.exhausted = False, None
        task.change(
            state=TaskState.RUNNING if goes_on else state,
            steps=0,
            awaited=goes_on and task.row.awaited,
            finish_asked=at_limit and not goes_on,
            handled="",
        )

    def _settle_finish(self, change: TaskChange) -> tuple[int, ...]:
        """Take back the request to finish the run, for it has ended; return its number.

        A turn that has begun on it goes on to its own commit, but ends nothing any more.
        """
        queued, change.memory.finish = change.memory.finish, None
        if queued is None or queued.filed:
            return ()
        for turn in change.task.turns.values():
            if turn.queued is queued and turn.phase is not Phase.MODEL:
                return ()
        change.on_applied(self.context.mailbox.remove, queued)
        return (queued.seq,) if queued.seq else ()  # without a number it is sent with this change

    def _settle_steps(self, change: TaskChange) -> tuple[int, ...]:
        """Take back the manual steps of the run; their callers are told why; return the numbers."""
        task = change.task
        paused = change.memory.row.state is TaskState.PAUSED
        waiting = [
            queued
            for queued in self.context.mailbox.queued_messages(task.task_id)
            if queued.of_step and (not paused or queued.step_ref in task.steps_due)
        ]
        for queued in waiting:
            change.on_applied(self.context.mailbox.remove, queued)
        running = [turn for turn in task.turns.values() if turn.queued.of_step]
        cut_off = [turn.seq for turn in running if turn.phase is Phase.MODEL]
        return (*(queued.seq for queued in waiting), *cut_off)

    def _close_calls(
        self, change: TaskChange, status: TaskState
    ) -> tuple[tuple[CallRow, ...], tuple[HistoryRow, ...]]:
        """Answer open calls with "not run", so that no history keeps a call without a result."""
        task = change.memory
        if not (task.calls or task.waits):
            return (), ()
        waits, task.waits = list(task.waits.values()), {}
        answered, entries = end_of_waits((wait, wait.draft.result("ended")) for wait in waits)
        rows, histories = list(answered), list(entries)
        for call in task.open_calls():
            runs = _runs(change, call)
            if runs and status is not TaskState.CANCELLED:
                continue  # its result comes
            text = _CUT_OFF if runs else UNANSWERED
            closed = call.closed(text, task.now())
            task.put(closed)
            entry = AgentToolCall.model_validate_json(call.call).create_response_msg(text)
            rows.append(closed)
            if swarm_of(create_agent_address(call.agent)):
                continue  # its history is elsewhere
            histories.append(HistoryRow(call.agent, to_json([entry]).decode()))
        return tuple(rows), tuple(histories)

    def _ending(  # noqa: PLR0913 - the parts of an ending, all named
        self,
        change: TaskChange,
        message: Envelope,
        status: TaskState,
        *,
        reason: str | None = None,
        by: str = "",  # the agent whose answer it is
        everybody: bool = False,
        over_budget: bool = False,
        at_limit: bool = False,
        settled: tuple[int, ...] = (),
    ) -> Ending:
        task = change.memory
        calls: tuple[CallRow, ...] = ()
        histories: tuple[HistoryRow, ...] = ()
        if status is not TaskState.PAUSED:
            calls, histories = self._close_calls(change, status)
            self._settle_row(change, status, at_limit=at_limit)
        settled += self._settle_finish(change) + self._settle_steps(change)
        away = self._tell_peers(change, message, status, everybody=everybody)
        wire, body = message.to_wire(), _json(message.body)  # it may be long: it is written once
        response = message.to_json(body, wire)
        unanswered = set() if everybody else change.unread
        more: dict[str, Any] = {"unanswered": sorted(unanswered)} if unanswered else {}
        if over_budget:
            more["over_budget"] = True
        if at_limit:
            more["ended_by"] = STEP_LIMIT
        terminal = _terminal(message, body, status, reason, more)
        events = [*(away.events if away else ()), terminal]
        if by:
            shown = f"task_complete response from {by}:"
            events.insert(0, message_event(response, message.timestamp, shown))
        return Ending(
            result=RunResult(
                task_id=task.task_id,
                message=wire,
                status=status,
                reason=reason,
                over_budget=over_budget,
                ended_by=more.get("ended_by"),
            ),
            events=tuple(events),
            response=response,
            everybody=everybody,
            unanswered=unanswered,
            calls=calls,
            histories=histories,
            settled=settled,
            memories=() if task.offer is NO_OFFER else take_back(task, message.timestamp),
            outbox=away.outbox if away else (),
            letters=self._tell_participants(change, message, status, everybody=everybody),
            close_requests=task.peering is not None and task.row.state not in _OPEN,
        )

    def _tell_peers(
        self, change: TaskChange, message: Envelope, status: TaskState, *, everybody: bool
    ) -> Mail | None:
        """Answer what the host is owed; tell the others when the task is over."""
        task, peering, unread = change.memory, change.memory.peering, change.unread
        if peering is None:
            return None
        mail = Mail(task)
        if status is TaskState.PAUSED:
            self._tell_pause(task, message, mail)
            return mail
        goes_on = task.row.state in _OPEN
        if goes_on and not task.host:
            return mail
        control = None if goes_on else PeerControl("ended", status.value)
        told = message._replace(subject=_TOLD[status])
        answered = {task.host}
        for ask in task.asks.waited("for_peer"):
            if everybody or ask.record not in unread:
                self._tell(mail, told, ask.asker, ask.ref, self._answer_id(task, ask), control)
                answered.add(swarm_in(ask.asker))
        if goes_on:
            return mail
        for peer in task.row.remote_swarms:
            if peer not in answered and peer in peering.contacts:
                name = _derived(f"{message.id}/{peer}")
                self._tell(mail, told, peering.contacts[peer], name, name, control)
        task.asks.end(unread)
        return mail

    def _tell_participants(
        self, change: TaskChange, message: Envelope, status: TaskState, *, everybody: bool
    ) -> tuple[LetterRow, ...]:
        """Answer the letters of participants that the run has read, and wait for none of theirs."""
        task, unread, sender = change.memory, change.unread, message.sender
        letters: dict[str, LetterRow] = {}  # one answer to a letter, though it was for several
        if task.row.state is TaskState.PAUSED:
            return ()
        for ask in task.asks.waited("for_participant"):
            if not everybody and message_id_for(ask.ref, ask.asked) in unread:
                continue
            task.asks.close(ask)
            by_agent = sender["address_type"] == "agent"
            if status is TaskState.COMPLETED and not by_agent:
                continue  # its sender waits for no answer
            answer = LetterRow(
                letter_id=_derived(f"{self.context.owner}/{task.task_id}/{ask.ref}/end"),
                sender=sender["address"] if by_agent else ask.asked,
                recipients=() if ask.thread_id else (ask.asker,),
                kind="thread" if ask.thread_id else "direct",
                body=plain(message.body),
                created_at=self.context.clock.now(),
                subject=message.subject,
                thread_id=ask.thread_id,
                reply_to=ask.ref,
                task_owner=owner_name(self.context.owner),
                task_id=task.task_id,
            )
            letters.setdefault(answer.letter_id, answer)
        if task.row.state not in _OPEN:
            for ask in task.asks.waited("participant"):
                task.asks.close(ask)
        return tuple(letters.values())

    def _tell_pause(self, task: TaskMemory, message: Envelope, mail: Mail) -> None:
        """Show the host the open calls: the results come from its own caller."""
        peering = task.peering
        # Held calls are answered here: the host waits for them as for anything that takes long.
        calls = [call for call in task.open_calls() if call.kind != "approval"]
        if peering is None or not task.host or not calls:
            return
        asked = [ask.asker for ask in task.asks.waited("for_peer")]
        to = asked[0] if asked else peering.contacts.get(task.host)
        if to is None:
            return
        name = _derived(f"{message.id}/{task.host}")  # not the request's: it is not answered yet
        control = PeerControl("paused", calls=tuple(from_json(call.shown) for call in calls))
        agents = [call.agent for call in calls if call.agent in self.context.agents]
        self._tell(mail, message, to, name, name, control, agents[0] if agents else "")

    def _answer_id(self, task: TaskMemory, ask: Question) -> str:
        """Return the id of the answer to a request that a run's end answers: always the same."""
        return _derived(f"{self.context.owner}/{task.task_id}/{ask.asker}/{ask.record}")

    def _tell(
        self,
        mail: Mail,
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
            timestamp=mail.moment,
        )
        swarm = parse_agent_address(to)[1]
        if swarm is not None:
            answer = answer._replace(recipient_swarms=(swarm,))
        self.mail_delivery.send_away(mail, answer, control)


def _terminal(
    message: Envelope, body: str, status: TaskState, reason: str | None, more: dict[str, Any]
) -> EventRow:
    told = {"subject": message.subject, "status": status.value}
    # The body of a pause is its calls in JSON; they may be long, so they are not written again.
    listed = message.body if status is TaskState.PAUSED else "[]"
    rest = f",{_json(more)[1:]}" if more else "}"
    return EventRow(
        "task_error" if reason is not None else "task_complete",
        message.timestamp,
        f"error for task: {reason}" if reason is not None else f"response: '{message.body}'",
        f'{{"response":{body},{_json(told)[1:-1]},"breakpoints":{listed}{rest}',
    )


def _runs(change: TaskChange, call: CallRow) -> bool:
    """Tell whether a turn runs a call at the moment, whose result will be noted."""
    turn = change.task.turns.get(call.agent)
    if turn is None or turn is change.turn:
        return False
    return turn.runs == call.call_id and turn.phase is Phase.ACTING


def _derived(text: str) -> str:
    return format_uuid(hashlib.sha256(text.encode()).digest()[:16], version=8)


def _json(value: Any) -> str:
    return to_json(value).decode()
