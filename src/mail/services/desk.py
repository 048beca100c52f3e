"""The mail desk: what participants do with letters and threads, whichever way they ask for it.

Nothing here knows HTTP. Docs: ``docs/mail-desk.md``. What is stored is the truth; the
`Bell` only tells those who wait that it is worth looking.
"""

import asyncio
import hashlib
import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple
from weakref import WeakValueDictionary

from mail.clock import Clock, format_uuid, later
from mail.core.schema import MAX_ID
from mail.core.suggest import did_you_mean
from mail.db.desk import (
    PARTICIPANT_ROLE,
    DeskPost,
    LetterFilter,
    LetterKind,
    LetterRow,
    LetterVerbs,
    MemberRow,
    PageRow,
    ReceiptRow,
    ThreadRow,
    ThreadView,
    letter_size,
    thread_size,
)
from mail.db.desk_search import MAX_PARTS, MAX_TERMS, LetterQuery, snippet
from mail.errors import (
    DeskConflict,
    Forbidden,
    ProtocolError,
    RequestReused,
    UnknownAgent,
    UnknownLetter,
    UnknownTask,
    UnknownThread,
)

MAX_MEMBERS: Final = 256
"""Members of a thread, and recipients of a broadcast."""
MAX_TITLE: Final = 200
MAX_SUBJECT: Final = 1024
MAX_NOTE: Final = 2000
DEFAULT_PAGE: Final = 10
MAX_PAGE: Final = 100
MAX_WAIT_SECONDS: Final = 300.0
MAX_QUERY: Final = 500
"""Characters of a search."""
PAGE_BYTES: Final = 1024 * 1024
"""Bytes after which a page of letters ends; it has one letter at least."""

_LETTERS_BEFORE: Final = 100
_BYTES_BEFORE: Final = 128 * 1024
"""The part of a thread, from its end, that is searched for what agents in it have missed."""
_LOOKS: Final = 5
"""The most pages that one search goes through while it has found nothing."""
_REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,255}")
_THREAD_PLACE: Final = re.compile(r"([0-9T:.+-]{25,32})~([\x21-\x7e]{1,256})")
_NO_LINE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_TASK_GONE: Final = (
    "the task of that message was deleted; send a message without reply_to to begin another"
)
_SHOWN_NAME: Final = 64
_SHOWN_NAMES: Final = 10

MembershipStatus = Literal["joined", "added", "already_participant"]


class Draft(NamedTuple):
    """A letter that a participant wants to send.

    Attributes:
        content: The text, not empty.
        subject: A line, or no text.
        reply_to: The id of the letter that it answers, or no text.
        urgent: Whether it wants attention at once.
        wants_ack: Whether the sender asks for an acknowledgement.
        request_id: The sender's name for this request, or no text; see `MailDesk.send_message`.
        file_id: A file of the sender's that comes with it, or no text; see `mail.services.files`.
        quiet: Whether the sender waits for no answer of agents.
    """

    content: str
    subject: str = ""
    reply_to: str = ""
    urgent: bool = False
    wants_ack: bool = False
    request_id: str = ""
    file_id: str = ""
    quiet: bool = False


class SentLetter(NamedTuple):
    """A letter that is stored; ``repeated`` if an earlier request with its id sent it."""

    letter: LetterRow
    repeated: bool = False


class FetchedLetter(NamedTuple):
    """A letter as a mailbox sees it.

    Attributes:
        letter: The letter.
        read: Whether it was read before, or needs no reading: what the mailbox wrote itself.
        receipts: Its fate at each recipient; for its sender and for operators only.
        snippet: The piece of it that a search has found.
    """

    letter: LetterRow
    read: bool
    receipts: list[ReceiptRow] | None = None
    snippet: str = ""


class LetterPage(NamedTuple):
    """Letters, newest first.

    Attributes:
        letters: At most as many as were asked for, and about `PAGE_BYTES`.
        unread: The number that is unread afterwards, at most 1000.
        next_before: The place to go on from, to older ones; None when the page is empty.
    """

    letters: list[FetchedLetter]
    unread: int
    next_before: int | None


class SearchPage(NamedTuple):
    """Letters that a search has found, newest first.

    Attributes:
        letters: They may be fewer than were asked for, though there are more.
        next_before: The place to go on from, to older ones; None at the end.
    """

    letters: list[FetchedLetter]
    next_before: int | None


class OpenedThread(NamedTuple):
    """A thread that was created, with the letter that opens it, if there is one."""

    view: ThreadView
    letter: LetterRow | None


class Bell:
    """Wakes those in this process who wait for letters. It is a hint: whoever hears it looks."""

    def __init__(self) -> None:
        self.closed = False
        self._waiting: dict[str, set[asyncio.Event]] = {}

    @contextmanager
    def listen(self, name: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever there may be mail for a mailbox."""
        rung = asyncio.Event()
        listeners = self._waiting.setdefault(name, set())
        listeners.add(rung)
        try:
            yield rung
        finally:
            listeners.discard(rung)
            if not listeners and self._waiting.get(name) is listeners:
                del self._waiting[name]

    def ring(self, names: Iterable[str]) -> None:
        """Wake those who wait for mail of some mailboxes."""
        for name in names:
            for rung in self._waiting.get(name, ()):
                rung.set()

    def close(self) -> None:
        """Wake everybody, for good."""
        self.closed = True
        self.ring(list(self._waiting))


class AgentDoor:
    """The swarm's agents as the desk sees them; what is not overridden is as if there were none."""

    @property
    def names(self) -> Set[str]:
        """The names of all agents."""
        return frozenset()

    def reached_by(self, name: str) -> Mapping[str, str]:
        """Return the agents that a mailbox may write to, with descriptions."""
        return {}

    async def deliver(
        self,
        letter: LetterRow,
        post: DeskPost,
        agents: tuple[str, ...],
        *,
        opens: bool,
        thread: Sequence[LetterRow] = (),
        quiet: bool = False,
    ) -> None:
        """Store a post together with the messages that a letter is for agents, and hand them out.

        Args:
            letter: The letter, which names the task and its owner.
            post: The records to store, the letter among them.
            agents: The agents that get it.
            opens: Whether it may open the task.
            thread: Of a post the newest letters of its thread before it, the newest first.
            quiet: Whether its sender waits for no answer.

        Raises:
            UnknownTask: there is no such task.
            MAILError: it cannot be taken, or not now; nothing is stored.
        """
        raise UnknownAgent(f"there is no agent named '{agents[0]}'")

    def tell(self, letters: Sequence[LetterRow], name: str, state: str, note: str = "") -> None:
        """Have the tasks of agents' letters told what became of them at a mailbox, soon.

        It is a hint for those who watch a task: the receipts are what counts.
        """


def check_claim(name: str, claimed: str | None, own: str) -> None:
    """Refuse a caller who says that it is another one; ``name`` is that of the argument.

    Raises:
        Forbidden: it does.
    """
    if claimed is not None and claimed != own:
        raise Forbidden(f"{name} must be your own id, '{own}'")


def thread_place(row: ThreadRow) -> str:
    """Return where a thread is in a list; see `MailDesk.list_threads`."""
    return f"{row.active_at}~{row.thread_id}"


async def _take(_name: str, _size: int) -> None:
    """Admit everything."""


@dataclass(slots=True, eq=False)
class MailDesk:
    """The desk of one swarm; the callers have made sure that a mailbox's name is the caller's own.

    Attributes:
        store: The store of letters and threads.
        swarm: The swarm.
        mailboxes: The mailboxes: name to description.
        clock: Time and ids.
        max_bytes: The size limit of a letter's content.
        admit: Called before something is stored with the mailbox that it counts for, and its
            bytes; raises what refuses it.
        bell: The signal to those that wait for letters.
        agents: The swarm's agents.
    """

    store: LetterVerbs
    swarm: str
    mailboxes: Mapping[str, str]
    clock: Clock
    max_bytes: int
    admit: Callable[[str, int], Awaitable[None]] = _take
    bell: Bell = field(default_factory=Bell)
    agents: AgentDoor = field(default_factory=AgentDoor)
    _locks: WeakValueDictionary[tuple[str, ...], asyncio.Lock] = field(
        default_factory=WeakValueDictionary, init=False
    )

    # --- sending ------------------------------------------------------------------------------

    async def send_message(
        self, sender: str, draft: Draft, recipient_id: str | None, thread_id: str | None
    ) -> SentLetter:
        """Send a letter to one mailbox, or to the other members of a thread.

        With a ``request_id`` the letter is sent once: a repeat gets the first one.

        Raises:
            ProtocolError: not exactly one of the two is given, the recipient is the sender or
                nobody, or the draft is wrong. Nothing is stored.
            UnknownThread: the sender is in no such thread.
            RequestReused: the request id stands for another letter.
        """
        if (recipient_id is None) == (thread_id is None):
            raise ProtocolError(
                "give either recipient_id, for a direct message, or thread_id, for a post",
                [{"field": "recipient_id", "problem": "exactly one of recipient_id and thread_id"}],
            )
        if thread_id is not None:
            return await self._send(sender, draft, "thread", (), thread_id)
        assert recipient_id is not None  # noqa: S101 - see above
        if recipient_id == sender:
            raise _wrong("recipient_id", "must not be yourself")
        return await self._send(sender, draft, "direct", (recipient_id,))

    async def broadcast_message(
        self,
        sender: str,
        draft: Draft,
        recipient_ids: Sequence[str],
        *,
        with_sender: bool = False,
    ) -> SentLetter:
        """Send one letter to several mailboxes: to all of them, or to none.

        A mailbox that is named twice gets it once, and the sender is left out unless
        ``with_sender`` is set.

        Raises:
            ProtocolError: nobody is left, somebody is unknown, or the draft is wrong.
            RequestReused: the request id stands for another letter.
        """
        distinct = dict.fromkeys(recipient_ids)
        names = tuple(name for name in distinct if with_sender or name != sender)
        if not names:
            raise _wrong("recipient_ids", "must name somebody other than yourself")
        if len(names) > MAX_MEMBERS:
            raise _wrong("recipient_ids", f"must not name more than {MAX_MEMBERS} mailboxes")
        return await self._send(sender, draft, "broadcast", names)

    async def _send(
        self,
        sender: str,
        draft: Draft,
        kind: LetterKind,
        recipients: tuple[str, ...],
        thread_id: str = "",
    ) -> SentLetter:
        self._check_draft(draft)
        letter = LetterRow(
            letter_id=self.id_for(sender, draft.request_id),
            sender=sender,
            recipients=recipients,
            kind=kind,
            body=draft.content,
            created_at="",
            subject=draft.subject,
            thread_id=thread_id,
            reply_to=draft.reply_to,
            file_id=draft.file_id,
            urgent=draft.urgent,
            wants_ack=draft.wants_ack,
        )
        async with self._held("request", letter.letter_id):
            known = await self._sent_before(letter) if draft.request_id else None
            if known is not None:
                return SentLetter(known, repeated=True)
            async with self._held("thread", thread_id or letter.letter_id):
                return SentLetter(await self._posted(letter, quiet=draft.quiet))

    async def _posted(self, letter: LetterRow, *, quiet: bool) -> LetterRow:
        """Store a letter, with a thread's members of this moment as its recipients."""
        if letter.thread_id:
            view = await self._thread_of(letter.sender, letter.thread_id)
            others = tuple(name for name in view.members if name != letter.sender)
            letter = letter._replace(recipients=others)
        answered = None
        if letter.reply_to:
            try:
                answered, _ = await self._visible(letter.sender, letter.reply_to)
            except UnknownLetter as error:
                raise _wrong("reply_to", str(error)) from None
        if not letter.thread_id:
            known = self.reached_by(letter.sender)
            if answered is not None and answered.sender in self.agents.names:
                known = {**known, answered.sender: ""}  # whoever may read a letter may answer it
            argument = "recipient_id" if letter.kind == "direct" else "recipient_ids"
            self._check_known(argument, letter.recipients, known)
        letter = letter._replace(created_at=self.clock.now())
        agents, opens = tuple(name for name in letter.recipients if name in self.agents.names), True
        if agents:
            letter = _in_task(letter, self._new_task(letter))
        if answered is not None and answered.task_id and answered.sender in agents:
            letter = _in_task(letter, answered)
            agents, opens = (answered.sender,), letter.task_owner == _owner(letter.sender)
        member = ((letter.thread_id, letter.sender),) if letter.thread_id else ()
        post = DeskPost(swarm=self.swarm, members=member, letters=(letter,))
        if agents:
            return await self._deliver(letter, post, agents, opens=opens, quiet=quiet)
        (seq,) = await self._commit(letter.sender, post)
        return letter._replace(seq=seq)

    async def _deliver(
        self,
        letter: LetterRow,
        post: DeskPost,
        agents: tuple[str, ...],
        *,
        opens: bool,
        quiet: bool = False,
    ) -> LetterRow:
        """Store a post with a letter for agents, all in one commit; return the stored letter."""
        await self._admit(letter.sender, post)
        thread = [*post.letters[:-1]]
        if letter.thread_id:  # the newest letters before it, as its sender sees them
            which = LetterFilter(letter.thread_id)
            rows = await self.store.letters(
                self.swarm, letter.sender, which, limit=_LETTERS_BEFORE, max_bytes=_BYTES_BEFORE
            )
            thread += [row for row, _ in rows]
        try:
            await self.agents.deliver(letter, post, agents, opens=opens, thread=thread, quiet=quiet)
        except UnknownTask:
            raise _wrong("reply_to", _TASK_GONE) from None
        except DeskConflict as error:
            if post.members:
                raise UnknownThread from error
            raise
        ((stored, _),) = await self.store.letters_by_id(self.swarm, [letter.letter_id])
        return stored

    def _new_task(self, letter: LetterRow) -> LetterRow:
        """Return a letter with the task that it opens or continues: one for each thread."""
        what = letter.thread_id or letter.letter_id
        task_id = _uuid_of(self.swarm, letter.sender, "task", what)
        return letter._replace(task_owner=_owner(letter.sender), task_id=task_id)

    def reached_by(self, name: str) -> Mapping[str, str]:
        """Return the mailboxes that a mailbox may write to, with descriptions."""
        return {**self.mailboxes, **self.agents.reached_by(name)}

    async def _sent_before(self, letter: LetterRow) -> LetterRow | None:
        """Return the letter that an earlier request with the same id sent, or None.

        Raises:
            RequestReused: it is another one.
        """
        found = await self.store.letters_by_id(self.swarm, [letter.letter_id])
        if not found:
            return None
        known = found[0][0]
        same = _in_task(letter, known)._replace(created_at=known.created_at, seq=known.seq)
        if letter.thread_id:  # its members may have changed
            same = same._replace(recipients=known.recipients)
        if same != known:
            raise RequestReused
        return known

    def id_for(self, sender: str, request_id: str) -> str:
        """Return a fresh id, or the one that the sender's request always has."""
        if not request_id:
            return self.clock.new_id()
        return _uuid_of(self.swarm, sender, request_id)

    # --- reading ------------------------------------------------------------------------------

    async def get_messages(  # noqa: PLR0913 - the documented arguments
        self,
        name: str,
        *,
        thread_id: str | None = None,
        limit: int = DEFAULT_PAGE,
        since: str | None = None,
        before: int | None = None,
        unread: bool = False,
        mark_read: bool = True,
        request_id: str | None = None,
    ) -> LetterPage:
        """Return a page of a mailbox's letters, and mark those that it has as read.

        Without a thread these are the letters to the mailbox; with one, all letters of the thread,
        its own too.

        Args:
            name: The mailbox.
            thread_id: Only letters of this thread.
            limit: At most so many, 1 to 100.
            since: Only letters after this time: RFC 3339 with a zone.
            before: Only letters before this place; see `LetterPage.next_before`.
            unread: Only unread letters.
            mark_read: Whether the letters of the page count as read from now on.
            request_id: The caller's name for this request: a repeat gets the same page again.

        Raises:
            ProtocolError: an argument is wrong.
            UnknownThread: the mailbox is in no such thread.
        """
        if not 1 <= limit <= MAX_PAGE:
            raise _wrong("limit", f"must be 1 to {MAX_PAGE}")
        after = "" if since is None else _moment(since)
        _check_request_id(request_id or "")
        if thread_id is not None:
            await self._thread_of(name, thread_id)
        known = await self.store.find_page(self.swarm, name, request_id) if request_id else None
        if known is not None:
            return await self._again(name, known)
        which = LetterFilter(thread_id or "", after, before, unread)
        rows = await self.store.letters(self.swarm, name, which, limit=limit, max_bytes=PAGE_BYTES)
        now = self.clock.now()
        new = [letter for letter, receipt in rows if _is_unread(name, letter, receipt)]
        page = (
            PageRow(request_id, tuple(row.letter_id for row, _ in rows), now)
            if request_id
            else None
        )
        shown = new if mark_read else []
        if (shown or page) and not await self._show(name, shown, now, page):
            # A repeat at the same time was faster.
            known = await self.store.find_page(self.swarm, name, request_id or "")
            assert known is not None  # noqa: S101 - pages of this age stay
            return await self._again(name, known)
        fetched = [
            FetchedLetter(letter, not _is_unread(name, letter, receipt)) for letter, receipt in rows
        ]
        return await self._paged(name, fetched)

    async def _again(self, name: str, page: PageRow) -> LetterPage:
        """Return a page once more, as far as its letters are still for the mailbox's eyes."""
        found = await self.store.letters_by_id(self.swarm, page.letter_ids)
        threads = {letter.thread_id for letter, _ in found if letter.thread_id}
        open_to = {thread for thread in threads if await self._is_member(name, thread)}
        fetched = []
        for letter, receipts in found:
            if letter.thread_id and letter.thread_id not in open_to:
                continue
            own = _own(name, receipts)
            read = own is None or "" < own.shown_at < page.created_at
            fetched.append(FetchedLetter(letter, read))
        return await self._paged(name, fetched)

    async def _paged(self, name: str, fetched: list[FetchedLetter]) -> LetterPage:
        last = fetched[-1].letter.seq if fetched else None
        return LetterPage(fetched, await self.check_new_messages(name), last)

    async def search_messages(
        self,
        name: str,
        text: str,
        *,
        thread_id: str | None = None,
        limit: int = DEFAULT_PAGE,
        before: int | None = None,
    ) -> SearchPage:
        """Look for words in what a mailbox may see, its own letters too; nothing is marked.

        Args:
            name: The mailbox.
            text: See `mail.db.desk_search.LetterQuery.parse`.
            thread_id: Only letters of this thread.
            limit: At most so many, 1 to 100.
            before: Only letters before this place; see `SearchPage.next_before`.

        Raises:
            ProtocolError: an argument is wrong, or the query asks for too much.
            UnknownThread: the mailbox is in no such thread.
        """
        if not 1 <= limit <= MAX_PAGE:
            raise _wrong("limit", f"must be 1 to {MAX_PAGE}")
        query = LetterQuery.parse(text[:MAX_QUERY])
        if len(text) > MAX_QUERY or query.terms > MAX_TERMS or query.parts > MAX_PARTS:
            allowed = f"at most {MAX_QUERY} characters and {MAX_TERMS} words"
            some = f"{MAX_PARTS} of them phrases or beginnings"
            raise _wrong("q", f"must have {allowed}, {some} (docs/mail-desk.md#search)")
        if thread_id is not None:
            await self._thread_of(name, thread_id)
        found: list[tuple[LetterRow, ReceiptRow]] = []
        for _ in range(_LOOKS):
            async with self._held("search", name):  # a mailbox takes one connection of the store
                found, before = await self.store.search_letters(
                    self.swarm,
                    name,
                    query,
                    thread_id=thread_id or "",
                    before=before,
                    limit=limit,
                    max_bytes=PAGE_BYTES,
                )
            if found or before is None:
                break
        letters = []
        for letter, receipt in found:
            read = not _is_unread(name, letter, receipt)
            letters.append(FetchedLetter(letter, read, snippet=snippet(query, letter.body)))
            await asyncio.sleep(0)  # others are served between two letters
        return SearchPage(letters, before)

    async def check_new_messages(self, name: str) -> int:
        """Return how many letters a mailbox has not read, at most 1000; nothing is marked."""
        return await self.store.unread_letters(self.swarm, name)

    async def latest(self, name: str) -> int:
        """Return the place of the newest letter to a mailbox, 0 without any."""
        rows = await self.store.letters(self.swarm, name, LetterFilter(), limit=1, max_bytes=1)
        return rows[0][0].seq if rows else 0

    async def wait_for_mail(self, name: str, seconds: float, after: int | None = None) -> int:
        """Return how many unread letters a mailbox has, as soon as there are any.

        Args:
            name: The mailbox.
            seconds: After which there may be none; at most `MAX_WAIT_SECONDS`.
            after: Wait instead until there is a letter after this place, and return the newest
                one's place; see `latest`.
        """
        deadline = asyncio.get_running_loop().time() + min(seconds, MAX_WAIT_SECONDS)
        with self.bell.listen(name) as rung:
            while True:
                rung.clear()
                if after is None:
                    found = await self.check_new_messages(name)
                else:
                    found = await self.latest(name)
                if found > (after or 0) or self.bell.closed:
                    return found
                try:
                    async with asyncio.timeout_at(deadline):
                        await rung.wait()
                except TimeoutError:
                    return found

    async def get_message(
        self, name: str | None, letter_id: str, *, mark_read: bool = True
    ) -> FetchedLetter:
        """Return one letter; for its sender with its receipts.

        Args:
            name: The mailbox; None for an operator, who sees every letter and its receipts.
            letter_id: The letter.
            mark_read: Whether it counts as read from now on, if the mailbox is a recipient.

        Raises:
            UnknownLetter: there is none, or it is not for the mailbox's eyes.
        """
        letter, receipts = await self._visible(name, letter_id)
        if name is None:
            return FetchedLetter(letter, read=True, receipts=receipts)
        own = _own(name, receipts)
        read = own is None or bool(own.shown_at)
        if mark_read and not read:
            await self._show(name, [letter], self.clock.now())
        return FetchedLetter(letter, read, receipts if name == letter.sender else None)

    async def acknowledge(
        self, name: str, letter_id: str, note: str = ""
    ) -> tuple[ReceiptRow, bool]:
        """Acknowledge a letter; return the receipt, and whether it was acknowledged just now.

        Raises:
            ProtocolError: the note is too long.
            UnknownLetter: there is none, or it is not for this mailbox.
        """
        if len(note) > MAX_NOTE or "\0" in note:
            raise _wrong("note", f"must be a text of at most {MAX_NOTE} characters")
        letter, receipts = await self._visible(name, letter_id)
        if _own(name, receipts) is None:
            raise UnknownLetter
        done = await self.store.acknowledge_letter(
            self.swarm, name, letter_id, self.clock.now(), note
        )
        if done is not None:
            self._tell_senders([letter], name, "acknowledged", note)
            return done, True
        found = await self.store.letters_by_id(self.swarm, [letter_id])
        known = _own(name, found[0][1]) if found else None
        if known is None or not known.acked_at:  # it has left the thread meanwhile
            raise UnknownLetter
        return known, False

    async def overdue(self, sender: str, seconds: float) -> list[tuple[LetterRow, ReceiptRow]]:
        """Return what a mailbox sent so long ago and still wants acknowledged, oldest first.

        There is one entry for each recipient that has neither acknowledged nor answered.
        """
        before = later(self.clock.now(), -seconds)
        return await self.store.overdue_letters(
            self.swarm, sender, before, limit=MAX_PAGE, max_bytes=PAGE_BYTES
        )

    # --- threads ------------------------------------------------------------------------------

    async def create_thread(
        self,
        creator: str,
        title: str,
        participants: Sequence[str],
        initial_message: str | None = None,
    ) -> OpenedThread:
        """Open a thread; everybody else in it gets a notice, and the initial message if any.

        Raises:
            ProtocolError: the title is none, or somebody is unknown; nothing is stored.
        """
        if not title.strip() or len(title) > MAX_TITLE or _NO_LINE.search(title):
            raise _wrong("title", f"must be a line of 1 to {MAX_TITLE} characters")
        members = tuple(dict.fromkeys((creator, *participants)))
        if len(members) > MAX_MEMBERS:
            raise _wrong("participants", f"a thread has at most {MAX_MEMBERS} members")
        self._check_known("participants", members[1:], self.reached_by(creator))
        if initial_message is not None:
            self._check_draft(Draft(initial_message), "initial_message")
        now, others = self.clock.now(), members[1:]
        thread = ThreadRow(self.clock.new_id(), title, creator, now)
        letters = []
        if others:
            told = f"{creator} created the thread '{title}' ({thread.thread_id}) and added you."
            letters.append(self._notice(told, others, thread.thread_id))
        if initial_message is not None:
            first = self._notice(initial_message, others, thread.thread_id)
            first = first._replace(sender=creator, kind="thread", recipients=others)
            letters.append(first)
        post = DeskPost(
            swarm=self.swarm,
            threads=(thread,),
            joined=tuple(MemberRow(thread.thread_id, name, now, creator) for name in members),
            letters=tuple(letters),
        )
        view = ThreadView(thread, list(members))
        agents = tuple(name for name in others if name in self.agents.names)
        if initial_message is not None and agents:
            first = self._new_task(letters[-1])
            post.letters = (*letters[:-1], first)
            return OpenedThread(view, await self._deliver(first, post, agents, opens=True))
        seqs = await self._commit(creator, post)
        letter = letters[-1]._replace(seq=seqs[-1]) if initial_message is not None else None
        return OpenedThread(view, letter)

    async def join_thread(self, name: str, thread_id: str) -> tuple[ThreadView, MembershipStatus]:
        """Join a thread; the members, old and new, get a notice.

        Raises:
            UnknownThread: there is none.
            ProtocolError: it is full.
        """
        async with self._held("thread", thread_id):
            view = await self._find(thread_id)
            if name in view.members:
                return view, "already_participant"
            told = f"{name} joined the thread '{view.thread.title}' ({thread_id})."
            people = self._people((*view.members, name))
            return await self._add(view, name, name, [(told, people)]), "joined"

    async def add_participant(
        self, inviter: str, thread_id: str, name: str
    ) -> tuple[ThreadView, MembershipStatus]:
        """Add somebody to a thread; they get a notice, and the other members another one.

        Raises:
            UnknownThread: the inviter is in no such thread.
            ProtocolError: nobody has that name, or the thread is full.
        """
        async with self._held("thread", thread_id):
            view = await self._thread_of(inviter, thread_id)
            self._check_known("agent_id_to_add", (name,), self.reached_by(inviter))
            if name in view.members:
                return view, "already_participant"
            title = view.thread.title
            welcome = f"{inviter} added you to the thread '{title}' ({thread_id})."
            told = f"{inviter} added {name} to the thread '{title}'."
            others = self._people(member for member in view.members if member != inviter)
            notices = [(welcome, (name,)), (told, others)]
            return await self._add(view, inviter, name, notices), "added"

    async def _add(
        self,
        view: ThreadView,
        by: str,
        name: str,
        notices: Sequence[tuple[str, tuple[str, ...]]],
    ) -> ThreadView:
        """Add somebody to a thread, with notices and who reads each of them."""
        thread_id = view.thread.thread_id
        if len(view.members) >= MAX_MEMBERS:
            raise ProtocolError(f"the thread is full: it has {MAX_MEMBERS} members")
        post = DeskPost(
            swarm=self.swarm,
            members=((thread_id, by),) if by != name else (),
            strangers=((thread_id, name),),
            joined=(MemberRow(thread_id, name, self.clock.now(), by),),
            letters=tuple(self._notice(text, names, thread_id) for text, names in notices),
        )
        await self._commit(by, post)
        return ThreadView(view.thread, [*view.members, name])

    async def remove_participant(self, remover: str, thread_id: str, name: str) -> ThreadView:
        """Remove somebody from a thread; the other members get a notice.

        From then on the thread is unknown to who was removed, and its letters too.

        Raises:
            UnknownThread: the remover is in no such thread.
            ProtocolError: nobody of that name is in it, or it is the thread's creator.
            Forbidden: the remover is neither the creator nor who is to be removed.
        """
        async with self._held("thread", thread_id):
            view = await self._thread_of(remover, thread_id)
            creator = view.thread.creator
            if name == creator:
                raise _wrong("agent_id_to_remove", "the creator cannot be removed")
            if remover not in (creator, name):
                raise Forbidden(f"only '{creator}', who created the thread, may remove others")
            if name not in view.members:
                raise _wrong("agent_id_to_remove", f"'{name[:_SHOWN_NAME]}' is not in the thread")
            left = [member for member in view.members if member != name]
            done = "left" if remover == name else "was removed by the creator from"
            told = f"{name} {done} the thread '{view.thread.title}'."
            others = self._people(member for member in left if member != remover)
            post = DeskPost(
                swarm=self.swarm,
                members=((thread_id, remover), (thread_id, name)),
                left=((thread_id, name),),
                letters=(self._notice(told, others, thread_id),),
            )
            await self._commit(remover, post)
            return ThreadView(view.thread, left)

    async def get_thread(self, name: str | None, thread_id: str) -> ThreadView:
        """Return a thread of a member's; any thread for an operator, whose name is None.

        Raises:
            UnknownThread: there is none, or the mailbox is not in it.
        """
        if name is None:
            return await self._find(thread_id)
        return await self._thread_of(name, thread_id)

    async def list_threads(self, name: str, after: str, limit: int) -> list[ThreadRow]:
        """Return a page of the threads that a mailbox is in, from the newest activity on.

        ``after`` is the `thread_place` of the one before the first, or no text.
        """
        found = _THREAD_PLACE.fullmatch(after.replace(" ", "+"))  # a bare plus in a URL is a space
        if after and found is None:
            raise _wrong("after", "must be the next_after of a page")
        place = (found[1], found[2]) if found else None
        return await self.store.list_threads(self.swarm, name, after=place, limit=limit)

    # --- what they share ----------------------------------------------------------------------

    async def _commit(self, payer: str, post: DeskPost) -> list[int]:
        """Store a post that counts for a mailbox, and wake who gets letters.

        Raises:
            UnknownThread: another process changed the thread's members meanwhile.
        """
        await self._admit(payer, post)
        try:
            seqs = await self.store.post_letters(post)
        except DeskConflict as error:
            if post.members:
                raise UnknownThread from error
            raise
        self.bell.ring(name for letter in post.letters for name in letter.recipients)
        return seqs

    async def _admit(self, payer: str, post: DeskPost) -> None:
        """Check that a mailbox may store a post, which counts for it."""
        post.payer = payer
        sizes = (*map(letter_size, post.letters), *map(thread_size, post.threads))
        await self.admit(payer, sum(sizes))

    async def _show(
        self, name: str, letters: Sequence[LetterRow], now: str, page: PageRow | None = None
    ) -> bool:
        """Note letters as shown; see `mail.db.desk.LetterVerbs.show_letters`."""
        ids = [each.letter_id for each in letters]
        done = await self.store.show_letters(self.swarm, name, ids, now, page)
        if done:
            self._tell_senders(letters, name, "shown")
        return done

    def _tell_senders(
        self, letters: Iterable[LetterRow], name: str, state: str, note: str = ""
    ) -> None:
        """Have the tasks of agents told what became of their letters at a mailbox."""
        agents = self.agents.names
        theirs = [each for each in letters if each.task_id and each.sender in agents]
        if theirs:
            self.agents.tell(theirs, name, state, note)

    def _people(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names of those who are no agents: these are told only that they were added."""
        return tuple(name for name in names if name not in self.agents.names)

    @asynccontextmanager
    async def _held(self, *key: str) -> AsyncIterator[None]:
        """Do one thing at a time with a thread, or for a request of a sender's."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            yield

    def _notice(self, text: str, recipients: Sequence[str], thread_id: str) -> LetterRow:
        return LetterRow(
            letter_id=self.clock.new_id(),
            sender="",
            recipients=tuple(recipients),
            kind="notice",
            body=text,
            created_at=self.clock.now(),
            thread_id=thread_id,
        )

    async def _find(self, thread_id: str) -> ThreadView:
        found = None
        if len(thread_id) <= MAX_ID and thread_id.isprintable():
            found = await self.store.find_thread(self.swarm, thread_id)
        if found is None:
            raise UnknownThread
        return found

    async def _thread_of(self, name: str, thread_id: str) -> ThreadView:
        view = await self._find(thread_id)
        if name not in view.members:
            raise UnknownThread
        return view

    async def _is_member(self, name: str, thread_id: str) -> bool:
        try:
            await self._thread_of(name, thread_id)
        except UnknownThread:
            return False
        return True

    async def _visible(
        self, name: str | None, letter_id: str
    ) -> tuple[LetterRow, list[ReceiptRow]]:
        """Return a letter if it is for a mailbox's eyes at the moment."""
        found = []
        if len(letter_id) <= MAX_ID and letter_id.isprintable():
            found = await self.store.letters_by_id(self.swarm, [letter_id])
        if not found:
            raise UnknownLetter
        letter, receipts = found[0]
        if name is None:
            return letter, receipts
        if letter.thread_id:
            visible = await self._is_member(name, letter.thread_id)
        else:
            visible = name in (letter.sender, *letter.recipients)
        if not visible:
            raise UnknownLetter
        return letter, receipts

    def _check_known(
        self, argument: str, names: Iterable[str], mailboxes: Mapping[str, str]
    ) -> None:
        """Refuse names of nobody; all of them are told."""
        unknown = [name for name in names if name not in mailboxes]
        if not unknown:
            return
        listing = ", ".join(f"'{name[:_SHOWN_NAME]}'" for name in unknown[:_SHOWN_NAMES])
        more = f" and {len(unknown) - _SHOWN_NAMES} more" if len(unknown) > _SHOWN_NAMES else ""
        hint = did_you_mean(unknown[0], mailboxes) if len(unknown) == 1 else ""
        raise _wrong(argument, f"no mailbox of this swarm is named {listing}{more}.{hint}")

    def _check_draft(self, draft: Draft, argument: str = "content") -> None:
        if not draft.content:
            raise _wrong(argument, "must not be empty")
        size = len(draft.content.encode())
        if size > self.max_bytes:
            raise _wrong(
                argument,
                f"must not be longer than {self.max_bytes} bytes, got {size}; send less, or a "
                "file (docs/files.md), or raise [server.limits] max_message_bytes",
            )
        if len(draft.subject) > MAX_SUBJECT or _NO_LINE.search(draft.subject):
            raise _wrong("subject", f"must be a line of at most {MAX_SUBJECT} characters")
        _check_request_id(draft.request_id)


def _owner(name: str) -> str:
    """Return the owner of the tasks that a mailbox's letters open, as letters name it."""
    return f"{PARTICIPANT_ROLE}:{name}"


def _in_task(letter: LetterRow, other: LetterRow) -> LetterRow:
    """Return a letter in the task of another one."""
    return letter._replace(task_owner=other.task_owner, task_id=other.task_id)


def _uuid_of(*parts: str) -> str:
    """Return the id that is always made of these texts."""
    return format_uuid(hashlib.sha256("\0".join(parts).encode()).digest()[:16], version=8)


def _own(name: str, receipts: Iterable[ReceiptRow]) -> ReceiptRow | None:
    return next((each for each in receipts if each.name == name), None)


def _is_unread(name: str, letter: LetterRow, receipt: ReceiptRow) -> bool:
    return name in letter.recipients and not receipt.shown_at


def _check_request_id(request_id: str) -> None:
    if request_id and not _REQUEST_ID.fullmatch(request_id):
        raise _wrong("request_id", "must be 1 to 255 visible ASCII characters")


def _moment(text: str) -> str:
    """Return a time as the store writes it, so that they can be compared."""
    try:
        found = datetime.fromisoformat(text.upper())
        moment = found.astimezone(UTC) if found.tzinfo else None
    except (OverflowError, ValueError):
        raise _wrong("since", "must be a time as in 2026-03-30T12:00:00Z") from None
    if moment is None:
        raise _wrong("since", "must have a time zone, as in 2026-03-30T12:00:00Z")
    return moment.isoformat(timespec="microseconds")


def _wrong(argument: str, problem: str) -> ProtocolError:
    text = f"{argument}: {problem}".removesuffix(".")
    return ProtocolError(text, [{"field": argument, "problem": problem}])
