"""Letters between agents and participants, in both directions: ``spec/SPEC.md``, chapter 23."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mail.core.addresses import create_agent_address
from mail.core.compose import Subject
from mail.core.envelope import NO_REPLY, Envelope
from mail.core.runtime.active_tasks import ActiveTask, TaskMemory, Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.correspondence import (
    ReceiptNews,
    in_thread,
    letter_of,
    letters_in,
    message_id_for,
    owner_name,
    participants_in,
    plain,
    question_of,
)
from mail.core.runtime.delivery import Mail, MailDelivery
from mail.core.runtime.mailbox import Hold
from mail.core.runtime.subjects import TaskSubject
from mail.core.runtime.submission import RunRequest, Submissions
from mail.core.runtime.transaction import Ending, TaskChange, from_outside
from mail.core.runtime.turn_result import TurnResult
from mail.core.tasks import TaskState
from mail.db.commit import Commit, TurnCommit
from mail.db.desk import AskRow, DeskPost, LetterRow, ShownRow
from mail.db.ledger import Question
from mail.errors import ProtocolError, UnknownAgent, UnknownTask
from mail.services.files import told_of

if TYPE_CHECKING:
    from mail.core.wire import MessageKind

_OVER: Final = "the task of that message is over; send a message without reply_to to begin another"
_UNANSWERED: Final = (
    "'{asked}' has not answered your message, so it is not waited for any more. An answer that "
    "comes later is an ordinary message."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskMail:
    """A participant's letter, checked and addressed to the runtime that takes it.

    Attributes:
        letter: The letter, which names the task and its owner.
        post: The records stored with the messages for agents: the letter, and maybe more.
        agents: The agents that get it.
        opens: Whether it may open the task.
        thread: Of a post the newest letters of its thread before it, the newest first.
        quiet: Its sender waits for no answer: a message to a team.
    """

    letter: LetterRow
    post: DeskPost
    agents: tuple[str, ...]
    opens: bool
    thread: tuple[LetterRow, ...] = ()
    quiet: bool = False


@dataclass(slots=True, eq=False)
class LetterSubject(TaskSubject):
    """Sends agents' messages to participants, and answers theirs when a run ends."""

    context: RuntimeContext

    def addressed(self, mail: Mail, envelope: Envelope) -> None:
        """Send a message to those of its recipients that are participants."""
        names = participants_in(envelope, self.context.parts.participants)
        if names:
            moment, owner = self.context.clock.now(), self.context.owner
            mail.letters += (letter_of(envelope, names, owner, moment, mail.task.asks),)

    def concluded(self, change: TaskChange, turn: Turn, turn_result: TurnResult) -> None:
        """Note the letters whose messages the agent's history has from this turn on."""
        memory, participants = change.memory, self.context.parts.participants
        if not (participants or memory.replies or (turn.control and turn.control.letters)):
            return
        if turn_result.failure is not None or not isinstance(change.commit, TurnCommit):
            return
        read = (turn.envelope, *(each.envelope for each in turn.buffered))
        letters = [each for envelope in read for each in letters_in(envelope, participants)]
        letters += turn.control.letters if turn.control else ()
        letters += memory.replies.get(turn.agent, ())
        if turn.agent in memory.replies:
            memory.replies = {k: ids for k, ids in memory.replies.items() if k != turn.agent}
        if letters:
            number, now = memory.row.steps + 1, self.context.clock.now()
            shown = (ShownRow(each, turn.agent, number, now) for each in letters)
            change.commit.shown = tuple(shown)

    def awaits(self, change: TaskChange) -> bool:
        """Tell whether a participant owes an answer."""
        return change.memory.asks.waits("participant")

    idle = awaits

    def ended(self, change: TaskChange, ending: Ending) -> None:
        """Answer the letters of participants that the run has read, and wait for none of theirs."""
        memory = change.memory
        if memory.row.state is TaskState.PAUSED:
            return
        letters: dict[str, LetterRow] = {}  # one answer to a letter, though it was for several
        for ask in memory.asks.waited("for_participant"):
            if not ending.everybody and message_id_for(ask.ref, ask.asked) in change.unread:
                continue
            memory.asks.close(ask)
            by_agent = ending.message.sender["address_type"] == "agent"
            if ending.result.status is TaskState.COMPLETED and not by_agent:
                continue  # its sender waits for no answer
            answer = self._answer(memory, ending.message, ask)
            letters.setdefault(answer.letter_id, answer)
        change.mail.letters += tuple(letters.values())
        if not memory.row.state.is_open:
            for ask in memory.asks.waited("participant"):
                memory.asks.close(ask)

    def _answer(self, memory: TaskMemory, message: Envelope, ask: Question) -> LetterRow:
        owner, sender = self.context.owner, message.sender
        return LetterRow(
            letter_id=message_id_for(f"{owner}/{memory.task_id}/{ask.ref}", "end"),
            sender=sender["address"] if sender["address_type"] == "agent" else ask.asked,
            recipients=() if ask.thread_id else (ask.asker,),
            kind="thread" if ask.thread_id else "direct",
            body=plain(message.body),
            created_at=self.context.clock.now(),
            subject=message.subject,
            thread_id=ask.thread_id,
            reply_to=ask.ref,
            task_owner=owner_name(owner),
            task_id=memory.task_id,
        )

    def collected(self, change: TaskChange, commit: Commit) -> None:
        """Add letters and their questions to a commit; ring for who gets them."""
        letters, (opened, closed) = change.mail.letters, change.memory.asks.letters()
        if letters or opened or closed:
            post = commit.desk or DeskPost(swarm=self.context.swarm)
            task = owner_name(self.context.owner), change.task.task_id
            asked = (
                AskRow(q.ref, q.asked, q.asker, *task, q.thread_id, q.created_at) for q in opened
            )
            settled = ((question.ref, question.asked) for question in closed)
            commit.desk = replace(
                post,
                letters=(*post.letters, *letters),
                asks=(*post.asks, *asked),
                settled=(*post.settled, *settled),
            )
        if self.context.outside.ring is not None:
            change.on_applied(_ring_for, self.context.outside.ring, commit)

    async def prepare(self, commit: Commit) -> None:
        """Address letters in threads to those who are members now."""
        if commit.desk is None or all(each.recipients for each in commit.desk.letters):
            return
        letters = []
        for letter in commit.desk.letters:
            if letter.thread_id and not letter.recipients:
                found = await self.context.store.find_thread(self.context.swarm, letter.thread_id)
                members = found.members if found else []
                left_out = (letter.sender, *self.context.agents)
                letter = letter._replace(
                    recipients=tuple(name for name in members if name not in left_out)
                )
            letters.append(letter)
        commit.desk = replace(commit.desk, letters=tuple(letters))

    async def repaired(self, commit: Commit) -> bool:
        """Take letters out of a commit that exist.

        An agent that is called twice for messages with the same id makes the same letters again.
        """
        if commit.desk is None:
            return False
        ids = [letter.letter_id for letter in commit.desk.letters]
        found = await self.context.store.letters_by_id(self.context.swarm, ids)
        known = {letter.letter_id for letter, _ in found}
        letters = tuple(each for each in commit.desk.letters if each.letter_id not in known)
        commit.desk = replace(commit.desk, letters=letters)
        return bool(known)


def _ring_for(ring: Callable[[Collection[str]], None], commit: Commit) -> None:
    if commit.desk is not None:  # it is known by now who gets letters in threads
        ring({name for letter in commit.desk.letters for name in letter.recipients})


@dataclass(slots=True, eq=False)
class LetterDoor:
    """Takes participants' letters into the tasks of one owner."""

    context: RuntimeContext
    submissions: Submissions
    mail_delivery: MailDelivery

    @from_outside
    async def take(self, mail: DeskMail) -> None:
        """Store a letter together with the messages that it is for agents, and hand them out.

        Raises:
            UnknownTask: it may not open a task, and there is none.
            UnknownAgent: a recipient is not here.
            TaskPaused: the task waits for the results of breakpoint calls.
            ProtocolError: the task of another owner is over.
            DeskConflict: the letter exists, or its thread does not fit.
            ShuttingDown: the runtime takes no more mail.
            StoreError: it could not be stored.
        """
        letter = mail.letter
        async with self.submissions.hold(letter.task_id, new=mail.opens) as task:
            if not task.stored:
                with suppress(UnknownTask):  # it opens one
                    await self.submissions.loader.load(task)
            await self._deliver(task, mail)

    def _check(self, memory: TaskMemory, mail: DeskMail, *, stored: bool) -> None:
        for name in mail.agents:
            if name not in self.context.agents:
                raise UnknownAgent(f"there is no agent named '{name}'")
        if not stored:
            return
        if self._is_own(mail.letter) and memory.row.state is TaskState.PAUSED:
            raise memory.paused_error()
        if not self._is_own(mail.letter) and not memory.row.state.is_open:
            raise ProtocolError(f"reply_to: {_OVER}", [{"field": "reply_to", "problem": _OVER}])

    def _is_own(self, letter: LetterRow) -> bool:
        """Tell whether a letter comes from whom the task is there for."""
        return bool(self.context.guest) and letter.sender == self.context.guest

    async def _deliver(self, task: ActiveTask, mail: DeskMail) -> None:
        letter, own = mail.letter, self._is_own(mail.letter)
        asker, about = await self._whom_it_answers(letter), ""
        if letter.file_id:
            row = await self.context.store.find_file(self.context.swarm, letter.file_id)
            if row is not None and told_of(row) not in letter.body:
                about = f"\n\n{told_of(row)}"
        async with TaskChange(self.context, task, patient=False) as change:
            self._check(change.memory, mail, stored=task.stored)
            asks, packed = change.memory.asks, change.mail
            answered = asks.find("participant", letter.reply_to, asked=letter.sender)
            for envelope in self._messages(change.memory, mail, about, answered):
                name = envelope.recipients[0]["address"]
                self.mail_delivery.add(packed, envelope, to=[name])
                change.on_applied(task.met.add, (name, letter.sender))
                if own and envelope.kind != "response":
                    asks.open(question_of(letter, name, by_agent=False))
            if asker:
                news = ReceiptNews(letter.reply_to, asker, letter.sender, "answered")
                packed.events.append(news.event(packed.moment))
            if answered is not None:
                asks.close(answered)
            if own:
                change.came.update(envelope.id for envelope in packed.envelopes)
                joins = task.stored and change.memory.row.state is TaskState.RUNNING
                request = RunRequest(message=packed.envelopes[0], awaited=True)
                self.submissions.reopen(change, request, joins=joins)
            else:
                self.submissions.goes_on(change)
            if not task.stored:
                change.memory.change(title=packed.envelopes[0].title)
            if change.memory.row.state is TaskState.PAUSED:
                change.on_applied(self.context.mailbox.hold, task.task_id, Hold.FIRM)
            owner, new = self.context.owner, not task.stored
            change.commit = Commit(owner, task.row, new=new, desk=mail.post)

    def _messages(
        self, task: TaskMemory, mail: DeskMail, about: str, answered: Question | None
    ) -> list[Envelope]:
        """Return what agents read of a letter: a message for each of them."""
        letter, found = mail.letter, []
        for name in mail.agents:
            answers = answered is not None and answered.asker == name
            kind: MessageKind = "request" if self._is_own(letter) else "response"
            if mail.quiet and letter.kind == "broadcast":
                kind = "broadcast"
            if letter.urgent:
                kind = "interrupt"
            body, noted = in_thread(letter, mail.thread, name)
            if mail.quiet:
                noted[NO_REPLY] = "yes"
            message = self.context.composer.message(
                "response" if answers else kind,
                task.task_id,
                create_agent_address(letter.sender),
                [create_agent_address(name)],
                letter.subject,
                body + about,
                ref=letter.reply_to if answers else letter.letter_id,
                message_id=message_id_for(letter.letter_id, name),
                routing_info=noted,
                timestamp=letter.created_at,
            )
            found.append(message)
        return found

    @from_outside
    async def tell(self, task_id: str, news: Sequence[ReceiptNews]) -> None:
        """Tell a task that goes on what became of letters of its agents, in events.

        Raises:
            UnknownTask, ShuttingDown, StoreError: see `take`.
        """
        async with (
            self.submissions.hold(task_id, new=False, brings_mail=False) as task,
            TaskChange(self.context, task, patient=False) as change,
        ):
            if change.memory.row.state.is_open:
                change.mail.events.extend(each.event(change.mail.moment) for each in news)
                self.submissions.goes_on(change)

    async def _whom_it_answers(self, letter: LetterRow) -> str:
        """Return the agent whose letter of the same task is answered for the first time, if any."""
        if not letter.reply_to:
            return ""
        found = await self.context.store.letters_by_id(self.context.swarm, [letter.reply_to])
        for answered, receipts in found:
            here = (answered.task_owner, answered.task_id) == (letter.task_owner, letter.task_id)
            first = any(each.name == letter.sender and not each.answered_at for each in receipts)
            if here and first and answered.sender in self.context.agents:
                return answered.sender
        return ""

    @from_outside
    async def give_up(self, ask: AskRow) -> None:
        """Wait no more for the answer of a participant, and tell the agent that asked.

        Raises:
            ShuttingDown, StoreError: see `take`.
        """
        key = ask.letter_id, ask.asked
        desk = DeskPost(swarm=self.context.swarm, settled=(key,))
        try:
            async with (
                self.submissions.hold(ask.task_id, new=False) as task,
                TaskChange(self.context, task, patient=False) as change,
            ):
                if change.memory.row.state is not TaskState.PAUSED:  # it waits for its caller
                    self._stop_waiting(change, ask)
                    change.commit = Commit(self.context.owner, task.row, desk=desk)
        except UnknownTask:  # it was deleted
            await self.context.store.post_letters(desk)

    def _stop_waiting(self, change: TaskChange, ask: AskRow) -> None:
        asks, mail = change.memory.asks, change.mail
        question = asks.find("participant", ask.letter_id, asked=ask.asked)
        if question is None:
            return
        asks.close(question)
        self.submissions.goes_on(change)
        if ask.asker in self.context.agents:
            told = ask.asker, Subject.UNDELIVERABLE, _UNANSWERED.format(asked=ask.asked)
            self.mail_delivery.notify(mail, *told, ask.letter_id)
            late = ReceiptNews(ask.letter_id, ask.asker, ask.asked, "overdue")
            mail.events.append(late.event(mail.moment))
