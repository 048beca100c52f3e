"""A task's letters from and to the swarm's participants: ``spec/SPEC.md``, chapter 23.

Agents and participants write to each other in letters (`mail.db.desk`), which are stored in the
same transactions as the mail of the task. Beside the task it is kept who waits for whose answer.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pydantic_core import to_json

from mail.core.compose import derived_id
from mail.core.envelope import Envelope
from mail.core.runtime.ledger import Ledger
from mail.db.desk import (
    PARTICIPANT_ROLE,
    LetterKind,
    LetterRow,
    ReceiptRow,
)
from mail.db.ledger import Question, QuestionKind
from mail.db.records import EventRow, Owner
from mail.db.store import Store

_LONGEST_SUBJECT: Final = 1024
_LONGEST_SHOWN: Final = 300
_EARLIER: Final = "thread_letters"
_LINE_ENDS: Final = {ord(sign): f"\\u{ord(sign):04x}" for sign in "\x7f\x85\u2028\u2029"}
"""Characters that JSON leaves as they are, though they may end a line."""
_EARLIER_LETTERS: Final = 20
_EARLIER_BYTES: Final = 16 * 1024
_MISSED: Final = (
    "What others wrote in this thread before, one letter a line. It is for your information."
)
_NEW: Final = "The new message, from {sender}:"
_NEWS: Final[Mapping[str, str]] = {
    "shown": "has got",
    "acknowledged": "acknowledges",
    "answered": "has answered",
    "overdue": "has not answered in time",
}


def owner_name(owner: Owner) -> str:
    """Return how letters name the owner of a task."""
    return f"{owner.role}:{owner.id}"


def participants_in(envelope: Envelope, participants: Collection[str]) -> tuple[str, ...]:
    """Return the participants that a message is for, each once."""
    if not participants:
        return ()
    names = (to["address"] for to in envelope.recipients if to["address_type"] == "agent")
    return tuple(dict.fromkeys(name for name in names if name in participants))


def message_id_for(letter_id: str, agent: str) -> str:
    """Return the id of the message that brings a participant's letter to an agent."""
    return derived_id(f"{letter_id}/{agent}")


def letters_in(envelope: Envelope, participants: Collection[str]) -> list[str]:
    """Return the ids of the letters that a participant's message brings, its own first."""
    sender, noted = envelope.sender, envelope.routing_info
    if sender["address_type"] != "agent" or sender["address"] not in participants:
        return []
    own = noted.get("message_id")
    return [str(own), *map(str, noted.get(_EARLIER, ()))] if own else []


def in_thread(
    letter: LetterRow, thread: Sequence[LetterRow], agent: str
) -> tuple[str, dict[str, Any]]:
    """Return how an agent reads a post, and what is noted of it: with what it has missed.

    That is what others, or the desk to the agent, wrote in the thread since it got the last post in
    the same task, as far as there is room: a JSON object a line, so that no text can pass for
    another's.

    Args:
        letter: The post.
        thread: The newest letters of the thread before it, the newest first.
        agent: The agent.
    """
    lines: list[str] = []
    ids, room, omitted, task = [], _EARLIER_BYTES, False, (letter.task_owner, letter.task_id)
    for each in thread:
        here = (each.task_owner, each.task_id) == task
        if here and each.sender == letter.sender and agent in each.recipients:
            break
        to_others = not each.sender and agent not in each.recipients
        if to_others or (here and each.sender == agent):
            continue  # a notice, or its own
        told = {"from": each.sender or None, "at": each.created_at, "text": each.body}
        line = to_json(told).decode().translate(_LINE_ENDS)
        room -= len(line.encode())
        if room < 0 or len(lines) == _EARLIER_LETTERS:
            omitted = True
            break
        lines.append(line)
        ids.append(each.letter_id)
    if not lines and not omitted:
        return letter.body, {"message_id": letter.letter_id}
    if omitted:
        lines.append('{"omitted":"older ones"}')
    told_before = "\n".join([_MISSED, *reversed(lines)])
    body = f"{told_before}\n\n{_NEW.format(sender=letter.sender)}\n{letter.body}"
    return body, {"message_id": letter.letter_id, _EARLIER: ids}


def post_of(envelope: Envelope) -> tuple[str, str]:
    """Return the text of a participant's message, and before it what `in_thread` told with it."""
    new = _NEW.format(sender=envelope.sender["address"])
    told, found, own = envelope.body.partition(f"\n\n{new}\n")
    return (told, own) if found and _EARLIER in envelope.routing_info else ("", envelope.body)


def plain(text: str) -> str:
    """Return text as every database can hold it."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def receipt_told(letter: LetterRow, receipt: ReceiptRow) -> dict[str, str]:
    """Return what an agent is told of one of its letters; what has not happened is left out."""
    state = "shown" if receipt.shown_at else "stored"
    state = "acknowledged" if receipt.acked_at else state
    told = {
        "message_id": letter.letter_id,
        "to": receipt.name,
        "subject": letter.subject[:_LONGEST_SHOWN],
        "sent_at": letter.created_at,
        "state": "answered" if receipt.answered_at else state,
        "shown_at": receipt.shown_at,
        "acknowledged_at": receipt.acked_at,
        "note": receipt.ack_note[:_LONGEST_SHOWN],
        "answered_at": receipt.answered_at,
    }
    return {name: value for name, value in told.items() if value}


class ReceiptNews(NamedTuple):
    """News of an agent's letter at a participant, for the events of its task.

    Attributes:
        letter_id: The letter.
        sender: The agent.
        name: The participant.
        state: ``shown``, ``acknowledged``, ``answered`` or ``overdue``.
        note: The note of an acknowledgement.
    """

    letter_id: str
    sender: str
    name: str
    state: str
    note: str = ""

    def event(self, timestamp: str) -> EventRow:
        """Return it as an event (MAIL-DESK-8)."""
        whose = f"the message of agent {self.sender}"
        extra = {
            "message_id": self.letter_id,
            "caller": self.sender,
            "participant": self.name,
            "state": self.state,
        }
        if self.note:
            extra["note"] = self.note[:_LONGEST_SHOWN]
        description = f"{self.name} {_NEWS[self.state]}: {whose}"
        return EventRow("letter_receipt", timestamp, description, to_json(extra).decode())


def letter_of(
    envelope: Envelope, names: tuple[str, ...], owner: Owner, created_at: str, asks: Ledger
) -> LetterRow:
    """Return an agent's message to participants as a letter, and note what it asks and answers."""
    sender, answered = envelope.sender["address"], None
    if envelope.kind == "response":
        owed = [each for each in asks.waited("for_participant") if each.asked == sender]
        owed = [each for each in owed if each.asker in names]  # it names one, or it is the newest
        answered = next((each for each in owed if each.ref == envelope.ref), None)
        answered = answered or (owed[-1] if owed else None)
    if answered is not None:
        asks.close(answered)
    kind: LetterKind = "broadcast" if envelope.kind == "broadcast" else "direct"
    in_a_thread = answered is not None and bool(answered.thread_id)
    letter = LetterRow(
        letter_id=envelope.id,
        sender=sender,
        recipients=() if in_a_thread else names,
        kind="thread" if in_a_thread else kind,
        body=plain(envelope.body),
        created_at=created_at,
        subject=" ".join(plain(envelope.subject).split())[:_LONGEST_SUBJECT],
        thread_id=answered.thread_id if answered else "",
        reply_to=answered.ref if answered else "",
        file_id=envelope.file_id,
        urgent=envelope.kind == "interrupt",
        task_owner=owner_name(owner),
        task_id=envelope.task_id,
    )
    if envelope.kind == "request":
        for name in names:
            asks.open(question_of(letter, name, by_agent=True))
    return letter


def question_of(letter: LetterRow, asked: str, *, by_agent: bool) -> Question:
    """Return that the sender of a letter waits for an answer."""
    return Question(
        letter.sender,
        asked,
        letter.letter_id,
        "participant" if by_agent else "for_participant",
        letter.letter_id,
        created_at=letter.created_at,
        thread_id=letter.thread_id,
    )


async def questions_in_letters(
    store: Store, owner: Owner, task_id: str, agents: Collection[str], participants: Collection[str]
) -> list[Question]:
    """Return the questions of a task's letters, but for those that nobody can answer any more."""
    if not participants and owner.role != PARTICIPANT_ROLE:
        return []
    found = []
    for row in await store.open_asks(owner.swarm, owner_name(owner), [task_id]):
        if row.asked in agents or row.asked in participants:
            kind: QuestionKind = "for_participant" if row.asked in agents else "participant"
            question = Question(row.asker, row.asked, row.letter_id, kind, row.letter_id)
            found.append(question._replace(created_at=row.created_at, thread_id=row.thread_id))
    return found


def agent_and_participant(question: Question) -> tuple[str, str]:
    """Return who of the two that a letter's question is between is the agent, and the other."""
    asked_agent = question.kind == "for_participant"
    return question.pair[::-1] if asked_agent else question.pair
