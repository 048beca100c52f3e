"""The mail desk in dictionaries, as a part of `mail.db.memory`."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import chain, islice
from typing import Final

from mail.db.desk import (
    PAGES_KEPT,
    AskRow,
    DeskPost,
    DroppedLetters,
    FoundLetters,
    LetterFilter,
    LetterPlace,
    LetterRow,
    MemberRow,
    PageRow,
    ReceiptRow,
    ShownRow,
    ThreadRow,
)
from mail.db.desk_search import LetterQuery, letter_line
from mail.db.files import FileRow
from mail.db.rows import file_size, letter_size, thread_size
from mail.errors import DeskConflict

_AT_ONCE: Final = 262_144
"""How many characters a search looks at before others get their turn."""


@dataclass(slots=True)
class _Letter:
    """A letter, whom it counts for, its receipts by recipient, and the line for searches."""

    row: LetterRow
    payer: str
    receipts: dict[str, ReceiptRow]
    line: str

    @property
    def place(self) -> LetterPlace:
        return LetterPlace(self.row.created_at, self.row.seq)

    def update(self, name: str, **changes: str | int) -> None:
        """Change a receipt."""
        self.receipts[name] = self.receipts[name]._replace(**changes)  # type: ignore[arg-type]

    def show(self, name: str, moment: str, turn: int = 0) -> None:
        """Note that it was shown to a recipient, if it was not before."""
        if name in self.receipts and not self.receipts[name].shown_at:
            self.update(name, shown_at=moment, turn=turn)


@dataclass(slots=True)
class _Desk:
    """Everything of one swarm. Letters are in their order wherever they are kept."""

    threads: dict[str, ThreadRow] = field(default_factory=dict)
    members: dict[str, dict[str, MemberRow]] = field(default_factory=dict)
    active: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    letters: dict[str, _Letter] = field(default_factory=dict)
    boxes: dict[str, dict[str, _Letter]] = field(default_factory=lambda: defaultdict(dict))
    written: dict[str, dict[str, _Letter]] = field(default_factory=lambda: defaultdict(dict))
    discussions: dict[str, dict[str, _Letter]] = field(default_factory=lambda: defaultdict(dict))
    pages: dict[str, dict[str, PageRow]] = field(default_factory=lambda: defaultdict(dict))
    bytes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    files: dict[str, FileRow] = field(default_factory=dict)
    carriers: dict[str, dict[str, _Letter]] = field(default_factory=lambda: defaultdict(dict))
    asks: dict[tuple[str, str], AskRow] = field(default_factory=dict)

    def is_member(self, thread_id: str, name: str) -> bool:
        return name in self.members.get(thread_id, ())

    def is_visible(self, letter: _Letter, name: str) -> bool:
        """Tell whether a recipient may see a letter at the moment."""
        thread_id = letter.row.thread_id
        return not thread_id or self.is_member(thread_id, name)

    def check(self, post: DeskPost) -> None:
        """Refuse what does not fit; nothing is changed.

        Raises:
            DeskConflict: see `mail.db.desk.DeskRecords.post_letters`.
        """
        self._check_members(post)
        letters: set[str] = set()
        for letter in post.letters:
            if letter.letter_id in self.letters or letter.letter_id in letters:
                raise DeskConflict(f"the letter '{letter.letter_id}' exists")
            letters.add(letter.letter_id)

    def _check_members(self, post: DeskPost) -> None:
        for thread_id, name in post.members:
            if not self.is_member(thread_id, name):
                raise DeskConflict(f"'{name}' is no member of the thread '{thread_id}'")
        for thread_id, name in post.strangers:
            if self.is_member(thread_id, name):
                raise DeskConflict(f"'{name}' is a member of the thread '{thread_id}'")
        new: set[object] = set()
        for thread in post.threads:
            if thread.thread_id in self.threads or thread.thread_id in new:
                raise DeskConflict(f"the thread '{thread.thread_id}' exists")
            new.add(thread.thread_id)
        for thread_id, name, *_ in post.joined:
            known = thread_id in self.threads or thread_id in new
            if not known or self.is_member(thread_id, name) or (thread_id, name) in new:
                raise DeskConflict(f"'{name}' cannot join the thread '{thread_id}'")
            new.add((thread_id, name))

    def add(self, post: DeskPost, first: int) -> list[int]:
        """Write what was checked; letters get their places from ``first`` on."""
        for thread in post.threads:
            self.threads[thread.thread_id] = thread
            self.members[thread.thread_id] = {}
            self.bytes[post.payer or thread.creator] += thread_size(thread)
        for member in post.joined:
            self.members[member.thread_id][member.name] = member
            self.active[member.thread_id][member.name] = member.joined_at
        for thread_id, name in post.left:
            self.members.get(thread_id, {}).pop(name, None)
            self.active[thread_id].pop(name, None)
        for ask in post.settled:
            self.asks.pop(ask, None)
        for row in post.asks:
            self.asks.setdefault((row.letter_id, row.asked), row)
        for seq, letter in enumerate(post.letters, first):
            self._add_letter(post.swarm, letter._replace(seq=seq), post.payer or letter.sender)
            self._note_answer(letter)
        return list(range(first, first + len(post.letters)))

    def _add_letter(self, swarm: str, row: LetterRow, payer: str) -> None:
        receipts = {name: ReceiptRow(row.letter_id, name) for name in row.recipients}
        letter = _Letter(row, payer, receipts, letter_line(swarm, row))
        self.letters[row.letter_id] = self.written[row.sender][row.letter_id] = letter
        self.bytes[payer] += letter_size(row)
        for name in receipts:
            self.boxes[name][row.letter_id] = letter
        if row.thread_id:
            self.discussions[row.thread_id][row.letter_id] = letter
            times = self.active[row.thread_id]
            times.update({name: max(at, row.created_at) for name, at in times.items()})
        if row.file_id:
            self.carriers[row.file_id][row.letter_id] = letter

    def _note_answer(self, answer: LetterRow) -> None:
        """Note in a receipt that its letter is answered, if it was not before."""
        letter = self.letters.get(answer.reply_to)
        if letter is None or letter.row.sender not in answer.recipients:
            return
        receipt = letter.receipts.get(answer.sender)
        if receipt is not None and not receipt.answered_at:
            moment = answer.created_at
            letter.update(answer.sender, answered_at=moment, answer_id=answer.letter_id)

    def drop(self, letter: _Letter) -> None:
        """Forget a letter."""
        row = letter.row
        del self.letters[row.letter_id], self.written[row.sender][row.letter_id]
        self.bytes[letter.payer] -= letter_size(row)
        for name in letter.receipts:
            del self.boxes[name][row.letter_id]
        if row.thread_id:
            del self.discussions[row.thread_id][row.letter_id]
        if row.file_id:
            del self.carriers[row.file_id][row.letter_id]

    def readable(self, name: str, thread_id: str, before: int | None) -> list[_Letter]:
        """Return what a mailbox may see, newest first."""
        if thread_id:
            threads = [thread_id] if self.is_member(thread_id, name) else []
            direct: list[_Letter] = []
        else:
            threads = [each for each, members in self.members.items() if name in members]
            mine = self.boxes.get(name, {}) | self.written.get(name, {})
            direct = [letter for letter in mine.values() if not letter.row.thread_id]
        posts = (self.discussions.get(each, {}).values() for each in threads)
        letters = [
            letter for letter in chain(direct, *posts) if before is None or letter.row.seq < before
        ]
        return sorted(letters, key=lambda letter: letter.row.seq, reverse=True)

    def found(self, name: str, which: LetterFilter) -> Iterator[_Letter]:
        """Yield what a mailbox has, newest first."""
        if not which.thread_id:
            letters = self.boxes.get(name, {})
        elif self.is_member(which.thread_id, name):
            letters = self.discussions.get(which.thread_id, {})
        else:
            return
        for letter in reversed(letters.values()):
            row = letter.row
            if (
                row.created_at > which.since
                and (which.before is None or row.seq < which.before)
                and not (which.unread and not _is_unread(letter, name))
                and self.is_visible(letter, name)
            ):
                yield letter


def _place(row: AskRow) -> tuple[str, ...]:
    """Return what orders open questions."""
    return row.created_at, row.letter_id, row.asked


def _is_unread(letter: _Letter, name: str) -> bool:
    return name in letter.receipts and not letter.receipts[name].shown_at


def _page(
    entries: Iterable[tuple[LetterRow, ReceiptRow]], limit: int, max_bytes: int | None
) -> list[tuple[LetterRow, ReceiptRow]]:
    """Return the first entries within the bounds, but at least one."""
    page: list[tuple[LetterRow, ReceiptRow]] = []
    taken = 0
    for row, receipt in islice(entries, limit):
        taken += letter_size(row)
        if page and max_bytes is not None and taken > max_bytes:
            break
        page.append((row, receipt))
    return page


class MemoryDesk:
    """`mail.db.desk.DeskRecords`, which lives and dies with the process."""

    def __init__(self) -> None:
        super().__init__()
        self._desks: dict[str, _Desk] = {}
        self._next_letter = 1

    def _desk(self, swarm: str) -> _Desk:
        desk = self._desks.get(swarm)
        if desk is None:
            desk = self._desks[swarm] = _Desk()
        return desk

    def _check_desk(self, post: DeskPost | None) -> None:
        if post is not None:
            self._desk(post.swarm).check(post)

    def _post_letters(self, post: DeskPost) -> list[int]:
        seqs = self._desk(post.swarm).add(post, self._next_letter)
        self._next_letter += len(seqs)
        return seqs

    def _note_shown(self, swarm: str, shown: Iterable[ShownRow]) -> None:
        letters = self._desk(swarm).letters
        for row in shown:
            if row.letter_id in letters:
                letters[row.letter_id].show(row.name, row.shown_at, row.turn)

    async def post_letters(self, post: DeskPost) -> list[int]:
        """See `mail.db.desk.DeskRecords.post_letters`."""
        self._check_desk(post)
        return self._post_letters(post)

    async def find_thread(
        self, swarm: str, thread_id: str
    ) -> tuple[ThreadRow, list[MemberRow]] | None:
        """See `mail.db.desk.DeskRecords.find_thread`."""
        desk = self._desk(swarm)
        if thread_id not in desk.threads:
            return None
        return desk.threads[thread_id], list(desk.members[thread_id].values())

    async def list_threads(
        self, swarm: str, name: str, *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[ThreadRow]:
        """See `mail.db.desk.DeskRecords.list_threads`."""
        desk = self._desk(swarm)
        places = ((times[name], each) for each, times in desk.active.items() if name in times)
        found = nlargest(limit, (place for place in places if after is None or place < after))
        return [desk.threads[each]._replace(active_at=active_at) for active_at, each in found]

    async def letters(
        self,
        swarm: str,
        name: str,
        which: LetterFilter,
        *,
        limit: int = 10,
        max_bytes: int | None = None,
    ) -> list[tuple[LetterRow, ReceiptRow]]:
        """See `mail.db.desk.DeskRecords.letters`."""
        entries = (
            (letter.row, letter.receipts.get(name, ReceiptRow(letter.row.letter_id, name)))
            for letter in self._desk(swarm).found(name, which)
        )
        return _page(entries, limit, max_bytes)

    async def letters_by_id(
        self, swarm: str, letter_ids: Sequence[str]
    ) -> list[tuple[LetterRow, list[ReceiptRow]]]:
        """See `mail.db.desk.DeskRecords.letters_by_id`."""
        letters = self._desk(swarm).letters
        found = [letters[each] for each in {*letter_ids} if each in letters]
        found.sort(key=lambda letter: letter.row.seq, reverse=True)
        return [(letter.row, list(letter.receipts.values())) for letter in found]

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
        """See `mail.db.desk.DeskRecords.search_letters`."""
        found: list[tuple[LetterRow, ReceiptRow]] = []
        if not query.terms:
            return FoundLetters(found, None)
        letters = self._desk(swarm).readable(name, thread_id, before)
        looked_at = 0
        for letter in letters:
            looked_at += len(letter.line)
            if looked_at > _AT_ONCE:
                looked_at = 0
                await asyncio.sleep(0)
            if query.fits(letter.line):
                row = letter.row
                found.append((row, letter.receipts.get(name, ReceiptRow(row.letter_id, name))))
                if len(found) > limit:
                    break
        page = _page(found, limit, max_bytes)
        return FoundLetters(page, page[-1][0].seq if len(page) < len(found) else None)

    async def index_letters(self, limit: int) -> int:
        """See `mail.db.desk.DeskRecords.index_letters`. Its letters are never old."""
        return 0

    async def open_asks(self, swarm: str, task_owner: str, task_ids: Sequence[str]) -> list[AskRow]:
        """See `mail.db.desk.DeskRecords.open_asks`."""
        asks = [each for each in self._asks(swarm) if each.task_owner == task_owner]
        return [each for each in asks if each.task_id in task_ids]

    async def newest_ask(self, swarm: str, asker: str, asked: str) -> AskRow | None:
        """See `mail.db.desk.DeskRecords.newest_ask`."""
        found = [each for each in self._asks(swarm) if (each.asker, each.asked) == (asker, asked)]
        return found[-1] if found else None

    async def old_asks(
        self, swarm: str, before: str, limit: int, after: AskRow | None = None
    ) -> list[AskRow]:
        """See `mail.db.desk.DeskRecords.old_asks`."""
        first = _place(after) if after else ()
        old = [each for each in self._asks(swarm) if each.created_at < before]
        return [each for each in old if _place(each) > first][:limit]

    def _asks(self, swarm: str) -> list[AskRow]:
        return sorted(self._desk(swarm).asks.values(), key=_place)

    async def unread_letters(self, swarm: str, name: str, limit: int = 1000) -> int:
        """See `mail.db.desk.DeskRecords.unread_letters`."""
        found = self._desk(swarm).found(name, LetterFilter(unread=True))
        return sum(1 for _ in islice(found, limit))

    async def show_letters(
        self,
        swarm: str,
        name: str,
        letter_ids: Sequence[str],
        moment: str,
        page: PageRow | None = None,
    ) -> bool:
        """See `mail.db.desk.DeskRecords.show_letters`."""
        if page is not None:
            pages = self._desk(swarm).pages[name]
            if page.request_id in pages:
                return False
            pages[page.request_id] = page
            if len(pages) > PAGES_KEPT:
                del pages[next(iter(pages))]
        self._note_shown(swarm, (ShownRow(each, name, 0, moment) for each in letter_ids))
        return True

    async def find_page(self, swarm: str, name: str, request_id: str) -> PageRow | None:
        """See `mail.db.desk.DeskRecords.find_page`."""
        return self._desk(swarm).pages.get(name, {}).get(request_id)

    async def acknowledge_letter(
        self, swarm: str, name: str, letter_id: str, moment: str, note: str = ""
    ) -> ReceiptRow | None:
        """See `mail.db.desk.DeskRecords.acknowledge_letter`."""
        desk = self._desk(swarm)
        letter = desk.boxes.get(name, {}).get(letter_id)
        if letter is None or letter.receipts[name].acked_at or not desk.is_visible(letter, name):
            return None
        letter.show(name, moment)
        letter.update(name, acked_at=moment, ack_note=note)
        return letter.receipts[name]

    async def overdue_letters(
        self,
        swarm: str,
        sender: str,
        before: str,
        limit: int = 100,
        max_bytes: int | None = None,
    ) -> list[tuple[LetterRow, ReceiptRow]]:
        """See `mail.db.desk.DeskRecords.overdue_letters`."""
        desk = self._desk(swarm)
        entries = (
            (letter.row, receipt)
            for letter in desk.letters.values()
            if letter.row.wants_ack
            and letter.row.sender == sender
            and letter.row.created_at < before
            and desk.is_visible(letter, sender)
            for receipt in sorted(letter.receipts.values())
            if not (receipt.acked_at or receipt.answered_at)
            and desk.is_visible(letter, receipt.name)
        )
        return _page(entries, limit, max_bytes)

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
        """See `mail.db.desk.DeskRecords.letters_of_task`."""
        written = self._desk(swarm).written.get(sender, {})
        entries = (
            (letter.row, receipt)
            for letter in reversed(written.values())
            if (letter.row.task_owner, letter.row.task_id) == task
            for receipt in sorted(letter.receipts.values())
            if recipient in ("", receipt.name)
            and not (
                unsettled_before
                and (
                    letter.row.created_at >= unsettled_before
                    or receipt.acked_at
                    or receipt.answered_at
                )
            )
        )
        return _page(entries, limit, max_bytes)

    async def letter_bytes(self, swarm: str, name: str) -> int:
        """See `mail.db.desk.DeskRecords.letter_bytes`."""
        return self._desk(swarm).bytes.get(name, 0)

    async def drop_letters(
        self, swarm: str, before: str, limit: int, after: LetterPlace | None = None
    ) -> DroppedLetters:
        """See `mail.db.desk.DeskRecords.drop_letters`."""
        desk = self._desk(swarm)
        old = [
            letter
            for letter in desk.letters.values()
            if letter.row.created_at < before and letter.place > (after or LetterPlace())
        ]
        seen = sorted(old, key=lambda letter: letter.place)[:limit]
        gone = [
            letter
            for letter in seen
            if not any(
                _is_unread(letter, name) and desk.is_visible(letter, name)
                for name in letter.receipts
            )
        ]
        for letter in gone:
            desk.drop(letter)
        return DroppedLetters(len(gone), seen[-1].place if len(seen) == limit else None)

    async def drop_pages(self, before: str, limit: int) -> int:
        """See `mail.db.desk.DeskRecords.drop_pages`."""
        old = sorted(
            (page.created_at, swarm, name, page.request_id)
            for swarm, desk in self._desks.items()
            for name, pages in desk.pages.items()
            for page in pages.values()
            if page.created_at < before
        )[:limit]
        for _, swarm, name, request_id in old:
            del self._desks[swarm].pages[name][request_id]
        return len(old)

    def _page_times(self) -> Iterator[str]:
        for desk in self._desks.values():
            for pages in desk.pages.values():
                yield from (page.created_at for page in pages.values())

    def _letter_times(self, swarm: str) -> Iterator[str]:
        yield from (letter.row.created_at for letter in self._desk(swarm).letters.values())

    def _file_times(self, swarm: str, since: str) -> Iterator[str]:
        files = self._desk(swarm).files.values()
        yield from (row.created_at for row in files if row.expires_at >= since)

    async def database_id(self) -> str:
        """See `mail.db.files.FileRecords.database_id`: all that forget are one."""
        return "memory"

    async def add_file(self, swarm: str, row: FileRow) -> None:
        """See `mail.db.files.FileRecords.add_file`."""
        desk = self._desk(swarm)
        if row.file_id in desk.files:
            raise DeskConflict(f"the file '{row.file_id}' exists")
        desk.files[row.file_id] = row
        desk.bytes[row.owner] += file_size(row)

    async def find_file(self, swarm: str, file_id: str) -> FileRow | None:
        """See `mail.db.files.FileRecords.find_file`."""
        return self._desk(swarm).files.get(file_id)

    async def list_files(
        self, swarm: str, owner: str, *, after: str = "", limit: int = 100
    ) -> list[FileRow]:
        """See `mail.db.files.FileRecords.list_files`."""
        files = self._desk(swarm).files.values()
        return sorted(row for row in files if row.owner == owner and row.file_id > after)[:limit]

    async def carries(
        self, swarm: str, name: str, file_id: str, task: tuple[str, str] | None = None
    ) -> bool:
        """See `mail.db.files.FileRecords.carries`."""
        desk = self._desk(swarm)
        return any(
            desk.is_member(letter.row.thread_id, name)
            if letter.row.thread_id
            else name in letter.receipts
            for letter in desk.carriers.get(file_id, {}).values()
            if task in (None, (letter.row.task_owner, letter.row.task_id))
        )

    async def drop_file(self, swarm: str, file_id: str) -> FileRow | None:
        """See `mail.db.files.FileRecords.drop_file`."""
        desk = self._desk(swarm)
        row = desk.files.pop(file_id, None)
        if row is not None:
            desk.bytes[row.owner] -= file_size(row)
        return row

    async def expired_files(self, swarm: str, before: str, limit: int) -> list[FileRow]:
        """See `mail.db.files.FileRecords.expired_files`."""
        old = (row for row in self._desk(swarm).files.values() if row.expires_at < before)
        return sorted(old, key=lambda row: row.expires_at)[:limit]

    async def known_contents(self, swarm: str, hashes: Collection[str]) -> set[str]:
        """See `mail.db.files.FileRecords.known_contents`."""
        return {row.sha256 for row in self._desk(swarm).files.values()} & {*hashes}
