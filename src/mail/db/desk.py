"""Letters between the mailboxes of a swarm: their records, and what a store does with them.

A mailbox belongs to a participant, who is no agent of the swarm but writes to its members, or to an
agent. Letters are kept apart from the deliveries of tasks: they have no turn, and wait until their
recipients fetch them. `DeskPost` is the one verb that adds something; it is a transaction, alone or
as a part of a task's commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

__all__ = [
    "DeskPost",
    "DeskRecords",
    "LetterFilter",
    "LetterKind",
    "LetterRow",
    "MemberRow",
    "PageRow",
    "ReceiptRow",
    "ThreadRow",
]

LetterKind = Literal["direct", "thread", "broadcast", "notice"]
"""A letter to one, to the members of a thread, to several, or what the desk itself tells."""


class ThreadRow(NamedTuple):
    """A discussion. Its letters are for those who are members at the moment."""

    thread_id: str
    title: str
    creator: str
    created_at: str


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
        created_at: When it was accepted; RFC 3339 text in UTC.
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
    """What became of a letter at one recipient. Texts are RFC 3339 in UTC, or empty.

    Attributes:
        letter_id: The letter.
        name: The recipient.
        shown_at: When it was fetched, or stood in an agent's request to its model.
        turn: That turn's number in its task, 0 for participants.
        acked_at: When it was acknowledged.
        ack_note: What was said then.
    """

    letter_id: str
    name: str
    shown_at: str = ""
    turn: int = 0
    acked_at: str = ""
    ack_note: str = ""


class PageRow(NamedTuple):
    """A page of letters that was returned; a repeated call with its id gets the same one."""

    request_id: str
    letter_ids: tuple[str, ...]
    created_at: str


class LetterFilter(NamedTuple):
    """Which letters of a mailbox are meant.

    Attributes:
        thread_id: Only letters of this thread.
        since: Only letters accepted after this time.
        before: Only letters with a place below this one.
        unread: Only letters that were not shown to it yet.
    """

    thread_id: str = ""
    since: str = ""
    before: int | None = None
    unread: bool = False


@dataclass(slots=True, kw_only=True)
class DeskPost:
    """What one transaction adds for a swarm. Every field but the swarm may be empty.

    ``members`` must be members of those threads, ``strangers`` must not be: (thread, name), both
    as the store has them before. Then ``threads`` and ``joined`` are added, ``left`` are removed,
    and ``letters`` are added with a receipt for each of their recipients.
    """

    swarm: str
    members: tuple[tuple[str, str], ...] = ()
    strangers: tuple[tuple[str, str], ...] = ()
    threads: tuple[ThreadRow, ...] = ()
    joined: tuple[MemberRow, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    letters: tuple[LetterRow, ...] = ()


class DeskRecords(Protocol):
    """Threads, letters, and what became of them.

    A letter without a thread is visible to its sender and its recipients. One of a thread is
    visible to the members of the thread at the moment, whenever they joined.
    """

    async def post_letters(self, post: DeskPost) -> list[int]:
        """Commit a `DeskPost`; return the places of its letters.

        Raises:
            StoreConflict: a member is none, a stranger is one, or a thread exists.
        """

    async def find_thread(
        self, swarm: str, thread_id: str
    ) -> tuple[ThreadRow, list[MemberRow]] | None:
        """Return a thread with its members in the order in which they joined, or None."""

    async def list_threads(
        self, swarm: str, name: str, *, after: str = "", limit: int = 100
    ) -> list[ThreadRow]:
        """Return a page of the threads of a member, by id; ``after`` is the id before the first."""

    async def letters(
        self,
        swarm: str,
        name: str,
        which: LetterFilter,
        *,
        limit: int = 10,
        max_bytes: int | None = None,
    ) -> list[tuple[LetterRow, ReceiptRow]]:
        """Return what a mailbox has, newest first.

        Without a thread these are the letters that it is a recipient of and that are visible to it;
        with one, all letters of the thread, its own too, if it is a member. Letters that it is no
        recipient of have an empty receipt.

        Args:
            swarm: The swarm.
            name: The mailbox.
            which: Which of them.
            limit: At most so many.
            max_bytes: At most so many bytes of bodies, but at least one letter: no more is read.
        """

    async def letters_by_id(
        self, swarm: str, letter_ids: Sequence[str]
    ) -> list[tuple[LetterRow, list[ReceiptRow]]]:
        """Return letters with all of their receipts, newest first; unknown ones are left out."""

    async def unread_letters(self, swarm: str, name: str, limit: int = 1000) -> int:
        """Return how many visible letters were not shown to a mailbox yet; at most ``limit``."""

    async def show_letters(
        self,
        swarm: str,
        name: str,
        letter_ids: Sequence[str],
        moment: str,
        page: PageRow | None = None,
    ) -> bool:
        """Note that letters were shown to a mailbox, for those that were not before.

        Args:
            swarm: The swarm.
            name: The mailbox.
            letter_ids: The letters.
            moment: When.
            page: To be stored in the same transaction.

        Returns:
            False when there is a page with that id already; nothing is changed then.
        """

    async def find_page(self, swarm: str, name: str, request_id: str) -> PageRow | None:
        """Return the page that a mailbox got for a request, or None."""

    async def acknowledge_letter(
        self, swarm: str, name: str, letter_id: str, moment: str, note: str = ""
    ) -> bool:
        """Note that a recipient acknowledges a letter; it counts as shown then.

        Returns:
            False when it was acknowledged before or is not for that mailbox; nothing is changed.
        """

    async def overdue_letters(
        self, swarm: str, sender: str, before: str, limit: int = 100
    ) -> list[tuple[LetterRow, ReceiptRow]]:
        """Return what a mailbox sent before a time and still wants acknowledged, oldest first."""

    async def letter_bytes(self, swarm: str, sender: str) -> int:
        """Return about how much the letters of a sender take."""

    async def drop_letters(self, swarm: str, before: str, limit: int) -> int:
        """Remove letters that were accepted before a time, with receipts; return how many.

        A letter that is visible to a recipient who was not shown it stays. Pages of that age go,
        too.
        """
