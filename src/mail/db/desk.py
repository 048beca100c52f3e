"""Letters between the mailboxes of a swarm: their records, and what a store does with them.

A mailbox belongs to a participant, who is no agent of the swarm but writes to its members, or to an
agent. Letters are kept apart from the deliveries of tasks: they have no turn, and wait until their
recipients fetch them. `DeskPost` is the one verb that adds something; it is a transaction, alone or
as a part of a task's commit.

Times are texts as `mail.clock.Clock.now` writes them, so that they can be compared. Names and ids
are at most some hundred characters long, which the callers see to: databases index them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

from mail.db.desk_search import LetterQuery

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
    """What became of a letter at one recipient. No text where that has not happened.

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
    """Which letters of a mailbox are meant.

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
    """How many letters were removed, and where to go on; no place when all were looked at."""

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
    """What one transaction adds for a swarm. Every field but the swarm may be empty.

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


class DeskRecords(Protocol):
    """Threads, letters, and what became of them.

    A letter without a thread is visible to its sender and its recipients. One of a thread is
    visible to the members of the thread at the moment, whenever they joined.
    """

    async def post_letters(self, post: DeskPost) -> list[int]:
        """Commit a `DeskPost`; return the places of its letters.

        Raises:
            DeskConflict: a member is none, a stranger is one, a thread or a letter with that id
                exists, or who is to join a thread is a member or finds no such thread. Nothing is
                stored then.
        """

    async def find_thread(
        self, swarm: str, thread_id: str
    ) -> tuple[ThreadRow, list[MemberRow]] | None:
        """Return a thread with its members in the order in which they joined, or None."""

    async def list_threads(
        self, swarm: str, name: str, *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[ThreadRow]:
        """Return a page of the threads of a member, from the newest activity on.

        Their order is that of (``active_at``, id); ``after`` are those before the first.
        """

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
        with one, all letters of the thread, its own too, if it is a member (none otherwise).
        Letters that it is no recipient of have an empty receipt.

        Args:
            swarm: The swarm.
            name: The mailbox.
            which: Which of them.
            limit: At most so many.
            max_bytes: At most about so many bytes, but at least one letter: no more is read. A
                letter counts as in `letter_bytes`.
        """

    async def letters_by_id(
        self, swarm: str, letter_ids: Sequence[str]
    ) -> list[tuple[LetterRow, list[ReceiptRow]]]:
        """Return letters with their receipts, newest first; unknown ones are left out.

        The receipts are in the order of the recipients. Whoever asks sees to it that the letters
        are for the eyes of its caller, and that they are not too many.
        """

    async def search_letters(
        self,
        swarm: str,
        name: str,
        query: LetterQuery,
        *,
        thread_id: str = "",
        before: int | None = None,
        limit: int = 10,
        max_bytes: int | None = None,
    ) -> FoundLetters:
        """Return what a mailbox may see and a query fits, newest first.

        Args:
            swarm: The swarm.
            name: The mailbox: sender or recipient of the letters, or a member of their threads, of
                which those count that `mail.db.desk_search.MAX_THREADS` tells.
            query: What is looked for.
            thread_id: Only letters of this thread.
            before: Only letters with a place below this one.
            limit: At most so many.
            max_bytes: As for `letters`.
        """

    async def index_letters(self, limit: int) -> int:
        """Let some letters, of any swarm, be found that were stored before letters could be.

        Returns:
            How many were looked at: 0 when there are no more.
        """

    async def open_asks(self, swarm: str, task_owner: str, task_ids: Sequence[str]) -> list[AskRow]:
        """Return the answers that are waited for in some tasks, in the order of writing.

        Args:
            swarm: The swarm.
            task_owner: Whose tasks they are, as ``role:id``.
            task_ids: The tasks, at most a hundred.
        """

    async def newest_ask(self, swarm: str, asker: str, asked: str) -> AskRow | None:
        """Return the newest letter to which somebody waits for somebody's answer, in any task."""

    async def old_asks(
        self, swarm: str, before: str, limit: int, after: AskRow | None = None
    ) -> list[AskRow]:
        """Return a page of what was asked before a time and is still waited for, oldest first.

        Args:
            swarm: The swarm.
            before: The time.
            limit: At most so many.
            after: The one before the first.
        """

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

        What is unknown, or not for that mailbox, is passed over.

        Args:
            swarm: The swarm.
            name: The mailbox.
            letter_ids: The letters.
            moment: When.
            page: To be stored in the same transaction; see `PAGES_KEPT`.

        Returns:
            False when there is a page with that id already; nothing is changed then.
        """

    async def find_page(self, swarm: str, name: str, request_id: str) -> PageRow | None:
        """Return the page that a mailbox got for a request, or None."""

    async def acknowledge_letter(
        self, swarm: str, name: str, letter_id: str, moment: str, note: str = ""
    ) -> ReceiptRow | None:
        """Note that a recipient acknowledges a letter; it counts as shown then.

        Returns:
            The receipt as it is now. None when it was acknowledged before, or is not for that
            mailbox or not visible to it any more; nothing is changed.
        """

    async def overdue_letters(
        self,
        swarm: str,
        sender: str,
        before: str,
        limit: int = 100,
        max_bytes: int | None = None,
    ) -> list[tuple[LetterRow, ReceiptRow]]:
        """Return what a mailbox sent before a time and still wants acknowledged, oldest first.

        There is one entry for each recipient that it is visible to and that has neither
        acknowledged nor answered it; none of a thread that the sender has left. For ``max_bytes``
        see `letters`.
        """

    async def letters_of_task(
        self,
        swarm: str,
        task: tuple[str, str],
        sender: str,
        *,
        recipient: str = "",
        unsettled_before: str = "",
        limit: int = 100,
        max_bytes: int | None = None,
    ) -> list[tuple[LetterRow, ReceiptRow]]:
        """Return what an agent wrote in a task, newest first: one entry for each recipient.

        Args:
            swarm: The swarm.
            task: Its owner as ``role:id``, and its id.
            sender: The agent.
            recipient: Only entries of this one.
            unsettled_before: Only what was written before this time and is neither acknowledged
                nor answered.
            limit: At most so many.
            max_bytes: As for `letters`.
        """

    async def letter_bytes(self, swarm: str, name: str) -> int:
        """Return about how many bytes of threads, letters and files count for a mailbox.

        Of a letter these are its body, its subject, and 100 for itself and each of its recipients;
        of a thread its title and 100; of a file its content, its name and 100. See
        ``DeskPost.payer``.
        """

    async def drop_letters(
        self, swarm: str, before: str, limit: int, after: LetterPlace | None = None
    ) -> DroppedLetters:
        """Look at letters that were accepted before a time, oldest first, and remove some.

        A letter stays if it is visible to a recipient who was not shown it. Receipts go with their
        letters; threads stay.

        Args:
            swarm: The swarm.
            before: The time.
            limit: At most so many are looked at.
            after: Behind which one, as the call before told.
        """

    async def drop_pages(self, before: str, limit: int) -> int:
        """Remove pages, of any swarm, that were made before a time; return how many.

        Args:
            before: The time.
            limit: At most so many, the oldest first.
        """
