"""What a task has to do with the swarm's participants: ``spec/SPEC.md``, chapter 23.

Agents and participants write to each other in letters (`mail.db.desk`), which are stored in the
same transactions as the mail of the task. Beside the task it is kept who waits for whose answer.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from pydantic_core import to_json

from mail.clock import format_uuid
from mail.core.envelope import Envelope
from mail.core.runtime.peering import Asks, close_ask
from mail.db.desk import AskRow, DeskPost, LetterKind, LetterRow, ReceiptRow
from mail.db.records import EventRow, Owner
from mail.db.store import Store

_LONGEST_SUBJECT: Final = 1024
_LONGEST_SHOWN: Final = 300
_EARLIER: Final = "thread_letters"
_LINE_ENDS: Final = {ord(sign): f"\\u{ord(sign):04x}" for sign in "\x7f\x85\u2028\u2029"}
"""What JSON leaves as it is, though it may end a line."""
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
    return format_uuid(hashlib.sha256(f"{letter_id}/{agent}".encode()).digest()[:16], version=8)


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


def earlier(now: str, seconds: float) -> str:
    """Return the time so many seconds before one, both as the store writes times."""
    moment = datetime.fromisoformat(now).astimezone(UTC) - timedelta(seconds=seconds)
    return moment.isoformat(timespec="microseconds")


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
    """What became of an agent's letter at a participant, for the events of its task.

    Attributes:
        letter_id: The letter.
        sender: The agent.
        name: The participant.
        state: ``shown``, ``acknowledged``, ``answered`` or ``overdue``.
        note: What was said with an acknowledgement.
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


@dataclass(slots=True, eq=False)
class DeskParts:
    """What a commit of a task adds to the mail desk."""

    letters: list[LetterRow] = field(default_factory=list)
    asks: list[AskRow] = field(default_factory=list)
    settled: list[tuple[str, str]] = field(default_factory=list)

    def plus(self, other: "DeskParts") -> "DeskParts":
        """Return both."""
        return DeskParts(
            [*self.letters, *other.letters],
            [*self.asks, *other.asks],
            [*self.settled, *other.settled],
        )

    def post(self, swarm: str) -> DeskPost | None:
        """Return it as a part of a commit, or None when there is nothing."""
        if not (self.letters or self.settled):
            return None
        return DeskPost(
            swarm=swarm,
            letters=tuple(self.letters),
            asks=tuple(self.asks),
            settled=tuple(self.settled),
        )


@dataclass(slots=True, eq=False)
class Correspondence:
    """A task's dealings with participants.

    Attributes:
        asked: Requests of agents, by (letter, participant), that are not answered.
        owed: Letters of participants, by (letter, agent), that are not answered.
        met: (agent, participant) for each participant that has written to an agent.
    """

    asked: dict[tuple[str, str], AskRow] = field(default_factory=dict)
    owed: dict[tuple[str, str], AskRow] = field(default_factory=dict)
    met: set[tuple[str, str]] = field(default_factory=set)

    def draft(self) -> "Correspondence":
        """Return a copy of the accounts of what is not answered; whom one has met is the same."""
        return Correspondence(dict(self.asked), dict(self.owed), self.met)

    def adopt(self, draft: "Correspondence") -> None:
        """Take the accounts of a draft over."""
        self.asked, self.owed, self.met = draft.asked, draft.owed, draft.met

    def write(
        self, envelope: Envelope, names: tuple[str, ...], owner: Owner, created_at: str
    ) -> DeskParts:
        """Return an agent's message as a letter, and keep account of it."""
        parts, sender = DeskParts(), envelope.sender["address"]
        answered = None
        if envelope.kind == "response":
            answered = self.owed.pop(self._owed_by(sender, envelope.ref, names), None)
        if answered is not None:
            parts.settled.append((answered.letter_id, answered.asked))
        kind: LetterKind = "broadcast" if envelope.kind == "broadcast" else "direct"
        in_thread = answered is not None and bool(answered.thread_id)
        letter = LetterRow(
            letter_id=envelope.id,
            sender=sender,
            recipients=() if in_thread else names,
            kind="thread" if in_thread else kind,
            body=plain(envelope.body),
            created_at=created_at,
            subject=" ".join(plain(envelope.subject).split())[:_LONGEST_SUBJECT],
            thread_id=answered.thread_id if answered else "",
            reply_to=answered.letter_id if answered else "",
            file_id=envelope.file_id,
            urgent=envelope.kind == "interrupt",
            task_owner=owner_name(owner),
            task_id=envelope.task_id,
        )
        parts.letters.append(letter)
        if envelope.kind == "request":
            for name in names:
                ask = ask_of(letter, name)
                parts.asks.append(ask)
                self.asked[ask.letter_id, name] = ask
        return parts

    def _owed_by(self, agent: str, ref: str, names: tuple[str, ...]) -> tuple[str, str]:
        """Return which letter an agent's answer is for: the one it names, or the newest."""
        mine = [k for k, ask in self.owed.items() if k[1] == agent and ask.asker in names]
        return (ref, agent) if (ref, agent) in mine or not mine else mine[-1]

    def fit(self, asks: Asks, participants: Set[str]) -> None:
        """Make the account of open requests, as far as participants are in it, tell the same."""
        for pair in [pair for pair in asks if not participants.isdisjoint(pair)]:
            del asks[pair]
        for ask in (*self.asked.values(), *self.owed.values()):
            asks.setdefault((ask.asker, ask.asked), []).append(ask.letter_id)

    def close(self, key: tuple[str, str], asks: Asks) -> None:
        """Note that a participant's answer is not waited for any more."""
        ask = self.asked.pop(key, None)
        if ask is not None:
            close_ask(asks, ask.asker, ask.asked, ask.letter_id)

    def end(self) -> list[tuple[str, str]]:
        """Note that agents wait for no answers any more; return what they waited for."""
        settled = list(self.asked)
        self.asked.clear()
        return settled


def ask_of(letter: LetterRow, asked: str) -> AskRow:
    """Return that the sender of a letter waits for an answer."""
    return AskRow(
        letter.letter_id,
        asked,
        letter.sender,
        letter.task_owner,
        letter.task_id,
        letter.thread_id,
        letter.created_at,
    )


async def load_correspondence(
    store: Store, owner: Owner, task_id: str, agents: Collection[str], participants: Collection[str]
) -> Correspondence:
    """Find out from the store what a task has to do with participants."""
    found = Correspondence()
    for row in await store.open_asks(owner.swarm, owner_name(owner), [task_id]):
        key = row.letter_id, row.asked
        if row.asked in agents:
            found.owed[key] = row
            found.met.add((row.asked, row.asker))
        elif row.asked in participants:  # else nobody can answer any more
            found.asked[key] = row
            found.met.add((row.asker, row.asked))
    return found
