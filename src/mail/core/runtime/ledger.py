"""The open questions of a task: who waits for whose answer (MAIL-DATA-12).

A question is opened by a request, and closed by the response to it or because nobody waits for one
any more. Calls that wait (`held_calls`, `teams`) and users' unread messages are no questions.
The ledger is stored with the task, a row for each question: see `mail.db.ledger`.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from mail.core.addresses import parse_agent_address
from mail.core.envelope import Envelope
from mail.db.ledger import LedgerPart, Question, QuestionKind

_MOST: Final = 64
"""Of the questions of one agent to another at least so many are kept, and at most twice as many."""

_LETTERS: Final = ("participant", "for_participant")
"""The kinds that are stored with the letters: reminders are sent across tasks."""

_Key: TypeAlias = tuple[str, str, str]


def swarm_in(name: str) -> str:
    """Return the swarm that an agent's name ends with, or no text."""
    return (parse_agent_address(name)[1] or "") if "@" in name else ""


def in_swarm(name: str, swarm: str) -> str:
    """Return an agent's name with its swarm, which is the given one if the name has none."""
    return name if "@" in name else f"{name}@{swarm}"


@dataclass(slots=True, eq=False)
class Ledger:
    """The open questions of a task, or a change's draft of them: a draft shares what it leaves.

    Attributes:
        questions: By (who asked, who was asked), and by what their answers refer to, oldest first.
        waiting: Those of any kind but ``agent``, by their keys.
        last: The number of the newest one.
        first: Whether an earlier version wrote the task, and the store has no ledger of it yet.
        opened: The questions that the store does not have yet, by number.
        closed: The questions that the store is to remove.
        settled: The questions that the mail desk is to remove.
    """

    questions: dict[tuple[str, str], dict[str, Question]] = field(default_factory=dict)
    waiting: dict[_Key, Question] = field(default_factory=dict)
    last: int = 0
    first: bool = False
    opened: dict[int, Question] = field(default_factory=dict)
    closed: list[Question] = field(default_factory=list)
    settled: list[Question] = field(default_factory=list)

    @classmethod
    def of(cls, questions: Iterable[Question], *, first: bool = False) -> "Ledger":
        """Return a ledger with questions, in order; with ``first`` the store has no ledger yet."""
        ledger = cls(first=first)
        for question in questions:
            ledger.open(question)
        new = ledger.opened.items() if first else ()
        ledger.opened = {number: each for number, each in new if each.kind not in _LETTERS}
        return ledger

    def draft(self) -> "Ledger":
        """Return a draft of it."""
        return Ledger(self.questions, self.waiting, self.last, self.first, dict(self.opened))

    def adopt(self, draft: "Ledger", *, stored: bool) -> None:
        """Take over what a draft has; ``stored`` tells that the store has it, too."""
        self.questions, self.waiting, self.last = draft.questions, draft.waiting, draft.last
        self.opened = {} if stored else draft.opened
        self.first = draft.first and not stored

    def changed(self) -> LedgerPart | None:
        """Return what a commit of the draft changes; letters' questions go with the letters."""
        opened = tuple(each for each in self.opened.values() if each.kind not in _LETTERS)
        if not (opened or self.closed or self.first):
            return None
        closed = tuple(each.number for each in self.closed)
        return LedgerPart(opened, closed, first=self.first)

    def letters(self) -> tuple[list[Question], list[Question]]:
        """Return the questions of letters that a commit of the draft opens and closes."""
        return [each for each in self.opened.values() if each.kind in _LETTERS], self.settled

    # --- what is open -------------------------------------------------------------------------

    def all(self) -> list[Question]:
        """Return all open questions, in order."""
        found = [each for refs in self.questions.values() for each in refs.values()]
        return sorted(found, key=lambda each: each.number)

    def refs(self, asker: str, asked: str) -> list[str]:
        """Return what answers to somebody's questions refer to, the oldest first."""
        return list(self.questions.get((asker, asked), ()))

    def waited(self, *kinds: QuestionKind, peer: str = "") -> list[Question]:
        """Return the questions of some kinds but ``agent``, in order.

        Args:
            kinds: The kinds.
            peer: Only those to a swarm, or of it.
        """
        return [
            each
            for each in self.waiting.values()
            if each.kind in kinds
            and (not peer or peer in (swarm_in(each.asked), swarm_in(each.asker)))
        ]

    def waits(self, *kinds: QuestionKind) -> bool:
        """Tell whether a question of some kinds but ``agent`` is open."""
        return any(each.kind in kinds for each in self.waiting.values())

    def find(
        self, kind: QuestionKind, ref: str, *, peer: str = "", asked: str = ""
    ) -> Question | None:
        """Return the question of a kind that an answer of a swarm, or of somebody, refers to."""
        found = (q for q in self.waited(kind, peer=peer) if q.ref == ref)
        return next((each for each in found if not asked or each.asked == asked), None)

    def pairs(self) -> list[tuple[str, str]]:
        """Return which agent here waits for which, as (who asked, who was asked)."""
        local = [
            pair
            for pair, refs in self.questions.items()
            if "@" not in pair[0] + pair[1] and any(q.kind == "agent" for q in refs.values())
        ]
        return [*local, *dict.fromkeys((q.asker, q.asked) for q in self.waited("peer"))]

    # --- changes ------------------------------------------------------------------------------

    def open(self, question: Question) -> None:
        """Add a question, or change the kind of one."""
        refs = self.questions.get(question.pair, {})
        if len(refs) >= 2 * _MOST:
            self.close(*[each for each in refs.values() if each.kind == "agent"][:_MOST])
            refs = self.questions.get(question.pair, {})
        if not question.number:
            known = refs.get(question.ref)
            question = question._replace(number=known.number if known else self.last + 1)
        self.last = max(self.last, question.number)
        self.questions = self.questions | {question.pair: refs | {question.ref: question}}
        self.opened[question.number] = question
        self._set_waited(question, waited=question.kind != "agent")

    def close(self, *questions: Question) -> None:
        """Note that questions, all of one agent to another, are open no more."""
        if not questions:
            return
        pair = questions[0].pair
        refs = dict(self.questions[pair])
        for question in questions:
            del refs[question.ref]
            if self.opened.pop(question.number, None) is None:
                (self.settled if question.kind in _LETTERS else self.closed).append(question)
            self._set_waited(question, waited=False)
        self.questions = self.questions | {pair: refs}
        if not refs:
            del self.questions[pair]

    def release(self, question: Question) -> None:
        """Note that nobody waits for an answer any more, but that one may still be given."""
        self.open(question._replace(kind="agent"))

    def _set_waited(self, question: Question, *, waited: bool) -> None:
        if waited:
            self.waiting = self.waiting | {question.key: question}
        elif question.key in self.waiting:
            self.waiting = {k: each for k, each in self.waiting.items() if k != question.key}

    def note(self, envelope: Envelope, swarm: str, participants: Collection[str] = ()) -> None:
        """Note what a message of an agent asks or answers.

        Args:
            envelope: The message.
            swarm: The swarm that the ledger is kept in.
            participants: Participants, whose letters are not noted here.
        """
        sender = envelope.sender["address"]
        if envelope.sender["address_type"] != "agent" or sender in participants:
            return
        names = [each["address"] for each in envelope.recipients]
        if envelope.kind == "request" and names[0] not in participants:
            kind: QuestionKind = "for_peer" if swarm_in(sender) not in ("", swarm) else "agent"
            kind = "peer" if swarm_in(names[0]) not in ("", swarm) else kind
            self.open(Question(sender, names[0], envelope.ref, kind, envelope.id))
        elif envelope.kind == "response":
            for name in names:
                self._answer(name, sender, envelope.ref)

    def _answer(self, asker: str, asked: str, ref: str) -> None:
        """Close the question that is answered; another agent of a swarm may do it for its own."""
        question = self.questions.get((asker, asked), {}).get(ref)
        if question is None and (swarm := swarm_in(asked)):
            question = self.find("peer", ref, peer=swarm)
        if question is None and (swarm := swarm_in(asker)):
            question = self.find("for_peer", ref, peer=swarm)
        if question is not None:
            self.close(question)

    def end(self, unread: Collection[str]) -> None:
        """Note the end of a run: nobody waits any more but for what is still to be read.

        Args:
            unread: The ids of messages that nobody has read.
        """
        for question in self.waited("peer"):
            self.close(question)
        for question in self.waited("for_peer"):
            if question.record not in unread:
                self.release(question)

    def forget(self, peer: str) -> None:
        """Note that a peer's run has ended: its agents wait for no answers any more."""
        for (asker, _), refs in list(self.questions.items()):
            if swarm_in(asker) == peer:
                for question in list(refs.values()):
                    self.close(question)
