"""Letters between the mailboxes of a swarm: their records. Their verbs are in `mail.db.letters`.

A mailbox belongs to a participant, who is no agent of the swarm but writes to its members, or to an
agent. Letters are kept apart from the deliveries of tasks: they have no turn, and wait until their
recipients fetch them. What is added is a `DeskPost`, in a transaction of its own or as part of a
task's commit.

Times are texts as `mail.clock.Clock.now` writes them, so that they can be compared. Names and ids
are at most some hundred characters long, which the callers see to: databases index them.
"""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

PAGES_KEPT: Final = 1000
"""How many pages of requests a mailbox has at most; a new one takes the place of the oldest."""

PARTICIPANT_ROLE: Final = "agent"
"""The role of participants, and so of the owners of the tasks that their letters open."""

LetterKind = Literal["direct", "thread", "broadcast", "notice"]
"""A letter to one, to the members of a thread, to several, or what the desk itself tells."""


class ThreadRow(NamedTuple):
    """A discussion. Its letters are for those who are members at the moment.

    ``active_at`` is the latest time of a letter of it, or of joining it, in a member's list; else
    no text.
    """

    thread_id: str
    title: str
    creator: str
    created_at: str
    active_at: str = ""


class MemberRow(NamedTuple):
    """A member of a thread; ``added_by`` is the member's own name after joining."""

    thread_id: str
    name: str
    joined_at: str
    added_by: str


class LetterRow(NamedTuple):
    """A letter.

    Attributes:
        letter_id: Unique in the swarm.
        sender: The mailbox that wrote it; no text for a notice of the desk.
        recipients: The mailboxes it was written to, the sender's never among them.
        kind: See `LetterKind`. A notice about a thread names it.
        body: Its text.
        created_at: When it was accepted.
        subject: A line, or no text.
        thread_id: Its thread, or no text.
        reply_to: The letter that it answers, or no text.
        file_id: The file that comes with it, or no text.
        urgent: Whether it wants attention at once.
        wants_ack: Whether its sender asks for an acknowledgement.
        task_owner: Of a letter from or to an agent the owner of the task as ``role:id``, else no
            text.
        task_id: That task, or no text.
        seq: Its place in the order of all letters; given by the store.
    """

    letter_id: str
    sender: str
    recipients: tuple[str, ...]
    kind: LetterKind
    body: str
    created_at: str
    subject: str = ""
    thread_id: str = ""
    reply_to: str = ""
    file_id: str = ""
    urgent: bool = False
    wants_ack: bool = False
    task_owner: str = ""
    task_id: str = ""
    seq: int = 0


class ReceiptRow(NamedTuple):
    """The state of a letter at one recipient. No text where something has not happened.

    Attributes:
        letter_id: The letter.
        name: The recipient.
        shown_at: When it was fetched, or stood in an agent's request to its model.
        turn: That turn's number in its task, 0 for participants.
        acked_at: When it was acknowledged.
        ack_note: What was said then.
        answered_at: When the recipient first wrote an answer to it that its sender got.
        answer_id: That answer.
    """

    letter_id: str
    name: str
    shown_at: str = ""
    turn: int = 0
    acked_at: str = ""
    ack_note: str = ""
    answered_at: str = ""
    answer_id: str = ""


class ShownRow(NamedTuple):
    """A letter that stood in an agent's request to its model: in which turn of the task, when."""

    letter_id: str
    name: str
    turn: int
    shown_at: str


class AskRow(NamedTuple):
    """A letter of a task whose sender waits for the answer of a recipient.

    Attributes:
        letter_id: The letter.
        asked: Who is to answer.
        asker: Who waits.
        task_owner: The owner of the task as ``role:id``.
        task_id: The task in which the answer is waited for.
        thread_id: The thread that the letter is in, or no text.
        created_at: When it was written.
    """

    letter_id: str
    asked: str
    asker: str
    task_owner: str
    task_id: str
    thread_id: str
    created_at: str


class PageRow(NamedTuple):
    """A page of letters that was returned; a repeated call with its id gets the same one."""

    request_id: str
    letter_ids: tuple[str, ...]
    created_at: str


class LetterFilter(NamedTuple):
    """A selection of the letters of a mailbox.

    Attributes:
        thread_id: Only letters of this thread.
        since: Only letters accepted after this time.
        before: Only letters with a place below this one.
        unread: Only letters that it is a recipient of and that were not shown to it yet.
    """

    thread_id: str = ""
    since: str = ""
    before: int | None = None
    unread: bool = False


class LetterPlace(NamedTuple):
    """The place of a letter in the order of age: a look at old letters goes on behind it."""

    created_at: str = ""
    seq: int = 0


class DroppedLetters(NamedTuple):
    """The number of letters removed, and the place to go on; none when all were looked at."""

    removed: int
    place: LetterPlace | None


class FoundLetters(NamedTuple):
    """Letters that a search has found, newest first, each with one's receipt.

    Attributes:
        letters: They may be fewer than were asked for, or none, though there are more.
        before: The place to go on from, to older ones; None when there are none.
    """

    letters: list[tuple[LetterRow, ReceiptRow]]
    before: int | None


@dataclass(slots=True, kw_only=True)
class DeskPost:
    """The additions of one transaction for a swarm. Every field but the swarm may be empty.

    ``members`` must be members of those threads, ``strangers`` must not be: (thread, name), both
    as the store has them before. Then ``threads`` and ``joined`` are added, ``left`` are removed
    (those who are no members are passed over), and ``letters`` are added with a receipt for each of
    their recipients. A letter with ``reply_to`` is noted in its sender's receipt of that one, if
    that one's sender gets it: the first such letter is the answer. What threads and letters take
    counts for ``payer``; without one, a letter counts for its sender, and a thread for its creator.
    ``settled``, (letter, who was asked), are not waited for any more, and ``asks`` are from now on.
    """

    swarm: str
    payer: str = ""
    members: tuple[tuple[str, str], ...] = ()
    strangers: tuple[tuple[str, str], ...] = ()
    threads: tuple[ThreadRow, ...] = ()
    joined: tuple[MemberRow, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    letters: tuple[LetterRow, ...] = ()
    asks: tuple[AskRow, ...] = ()
    settled: tuple[tuple[str, str], ...] = ()
