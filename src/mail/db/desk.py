"""The mail desk's threads, letters and receipts, and what a store does with them.

A letter goes from one mailbox to others. Where it stands with a recipient is a receipt: a row of
its own, so that nothing is written twice. What is read of a mailbox comes from its receipts:
whatever others have, no more rows are looked at than are returned, but for those of threads that it
has left. A page is bounded before the letters themselves are read.

Times are texts as `mail.clock.Clock.now` writes them, so that they can be compared. Names and ids
are at most some hundred characters long, which the callers see to: databases index them.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from mail.db.desk_search import (
    LONGEST_LINE,
    LOOKED_AT,
    LOOKED_BYTES,
    MAX_THREADS,
    SEARCHED_CHARACTERS,
    LetterQuery,
    letter_line,
    mailbox_mark,
    thread_mark,
)
from mail.db.driver import Batch, Change, Insert, Query, Verb, Verbs, read, write
from mail.db.rows import MANY, Values, columns, insert, reader, written
from mail.db.texts import text_size
from mail.errors import DeskConflict

PAGES_KEPT: Final = 1000
"""The number of pages of requests that a mailbox keeps; a new one replaces the oldest."""

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


class ThreadView(NamedTuple):
    """A thread with the names of its members in the order in which they joined."""

    thread: ThreadRow
    members: list[str]


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
        created_at: The time of acceptance.
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
        shown_at: The time of the fetch, or of the agent's request to its model that had it.
        turn: That turn's number in its task, 0 for participants.
        acked_at: The time of the acknowledgement.
        ack_note: The note of the acknowledgement.
        answered_at: The time of the recipient's first answer that its sender got.
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
        asked: The one who is to answer.
        asker: The one who waits.
        task_owner: The owner of the task as ``role:id``.
        task_id: The task in which the answer is waited for.
        thread_id: The thread that the letter is in, or no text.
        created_at: The time of writing.
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


_LETTER: Final = columns(LetterRow).replace("thread_id", "desk_letters.thread_id")

_as_letter: Final = reader(LetterRow)

_RECEIPT: Final = columns(ReceiptRow, "letter_id", "name")
"""The columns of a `ReceiptRow`, but for its letter and its name."""

_VISIBLE: Final = """(r.thread_id = '' OR 1 = (
    SELECT 1 FROM desk_members AS m
    WHERE m.swarm_name = r.swarm_name AND m.thread_id = r.thread_id AND m.name = r.name))"""
"""Of a receipt of a letter that its recipient may see at the moment.

For EXISTS, PostgreSQL would read all members of all threads first.
"""

_VISIBLE_TO_SENDER: Final = _VISIBLE.replace("m.name = r.name", "m.name = r.owed_to")
"""Of a receipt of a letter that whoever waits for it may see at the moment."""

_REMOVABLE: Final = f"""NOT EXISTS (
    SELECT 1 FROM desk_receipts AS r
    WHERE r.letter = l.seq AND length(r.shown_at) = 0 AND {_VISIBLE})"""
"""Of a letter that nobody has yet to see; written so that it leaves the index of unread ones."""

_FIND_LETTER: Final = "SELECT seq FROM desk_letters WHERE swarm_name = $1 AND letter_id = $2"

_IS_MEMBER: Final = (
    "SELECT 1 FROM desk_members WHERE swarm_name = $1 AND thread_id = $2 AND name = $3"
)

_THREAD: Final = columns(ThreadRow, "active_at")
_ADD_THREAD: Final = f"{insert('desk_threads', 'swarm_name', _THREAD)} ON CONFLICT DO NOTHING"

_JOIN: Final = """
INSERT INTO desk_members (swarm_name, thread_id, name, joined_at, added_by, active_at)
SELECT swarm_name, thread_id, $3, $4, $5, $4 FROM desk_threads
WHERE swarm_name = $1 AND thread_id = $2
ON CONFLICT DO NOTHING
"""

_LEAVE: Final = """
DELETE FROM desk_members WHERE swarm_name = $1 AND thread_id = $2 AND name = $3
"""

_NOTE_ACTIVITY: Final = """
UPDATE desk_members SET active_at = $3
WHERE swarm_name = $1 AND thread_id = $2 AND active_at < $3
"""

_LATEST: Final = """
SELECT latest FROM desk_letters WHERE swarm_name = $1 ORDER BY latest DESC LIMIT 1
"""

_ADD_LETTER: Final = f"""
INSERT INTO desk_letters (swarm_name, {columns(LetterRow, "seq")}, payer, size, latest)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
    CASE WHEN $7 > coalesce(({_LATEST}), '') THEN $7 ELSE ({_LATEST}) END)
"""

_ADD_WORDS: Final = "INSERT INTO desk_words (rowid, words) VALUES ($1, $2)"

_ADD_RECEIPT: Final = f"""
INSERT INTO desk_receipts (swarm_name, name, letter, thread_id, owed_to, {_RECEIPT})
VALUES ($1, $2, $3, $4, $5, '', 0, '', '', '', '')
"""

ADD_USE: Final = """
INSERT INTO desk_use (swarm_name, name, bytes) VALUES ($1, $2, $3)
ON CONFLICT (swarm_name, name) DO UPDATE SET bytes = desk_use.bytes + excluded.bytes
"""
"""Adds bytes, which may be less than nothing, to what counts for a mailbox."""

_SHOW: Final = f"""
UPDATE desk_receipts SET shown_at = $5, turn = $4
WHERE swarm_name = $1 AND name = $3 AND letter = ({_FIND_LETTER}) AND shown_at = ''
"""

_ANSWER: Final = """
UPDATE desk_receipts SET answered_at = $5, answer_id = $4, owed_to = ''
WHERE swarm_name = $1 AND name = $3 AND answered_at = '' AND letter = (
    SELECT l.seq FROM desk_letters AS l
    JOIN desk_receipts AS got ON got.swarm_name = $1 AND got.name = l.sender AND got.letter = $6
    WHERE l.swarm_name = $1 AND l.letter_id = $2)
"""
"""Note that a letter is answered, by one that its sender got."""

_ASK: Final = columns(AskRow)
_ADD_ASK: Final = f"{insert('desk_asks', 'swarm_name', _ASK)} ON CONFLICT DO NOTHING"

_SETTLE: Final = """
DELETE FROM desk_asks WHERE swarm_name = $1 AND letter_id = $2 AND asked = $3
"""

_PAGE: Final = columns(PageRow)
_as_page: Final = reader(PageRow)
_ADD_PAGE: Final = f"{insert('desk_pages', 'swarm_name, name', _PAGE)} ON CONFLICT DO NOTHING"

_DROP_PAGES: Final = f"""
DELETE FROM desk_pages WHERE id IN (
    SELECT id FROM desk_pages WHERE swarm_name = $1 AND name = $2
    ORDER BY id DESC LIMIT 10 OFFSET {PAGES_KEPT})
"""

_OF_BOX: Final = f"""
SELECT letter, name, {_RECEIPT} FROM desk_receipts AS r
WHERE swarm_name = $1 AND name = $2 AND {_VISIBLE}"""
"""The letters that a mailbox is a recipient of."""

_UNREAD: Final = f"""
SELECT letter, name, shown_at, 0 AS turn, '' AS acked_at, '' AS ack_note, answered_at, answer_id
FROM desk_receipts AS r
WHERE swarm_name = $1 AND name = $2 AND shown_at = '' AND {_VISIBLE}"""
"""The part of it that was not shown yet: an index of these has all columns."""

_OR_NONE: Final = ", ".join(
    f"coalesce({name}, {0 if name == 'turn' else repr('')}) AS {name}"
    for name in _RECEIPT.split(", ")
)
_WITH_RECEIPTS: Final = f"""
SELECT l.seq AS letter, CAST($2 AS TEXT) AS name, {_OR_NONE}
FROM desk_letters AS l
LEFT JOIN desk_receipts AS r ON r.swarm_name = $1 AND r.name = $2 AND r.letter = l.seq"""
"""Letters with the receipts of a mailbox."""

_OF_THREAD: Final = f"""{_WITH_RECEIPTS}
WHERE l.swarm_name = $1 AND l.thread_id = $3 AND l.thread_id <> '' AND EXISTS (
    SELECT 1 FROM desk_members WHERE swarm_name = $1 AND thread_id = $3 AND name = $2)"""
"""The letters in a thread, for a member."""

_SINCE: Final = """{letter} > coalesce((
    SELECT seq FROM desk_letters WHERE swarm_name = $1 AND latest <= {since}
    ORDER BY latest DESC, seq DESC LIMIT 1), 0)
AND (SELECT created_at FROM desk_letters WHERE seq = {letter}) > {since}"""
"""Of letters after a time. The first part finds where such begin; without jumps of the clock, the
second one changes nothing."""

_LOOK: Final = f"""
WITH looked AS ({{candidates}}),
sized AS (
    SELECT letter, (
        SELECT CASE WHEN size < {LONGEST_LINE} THEN size ELSE {LONGEST_LINE} END
        FROM desk_letters WHERE seq = letter) AS size
    FROM looked),
totals AS (
    SELECT letter, sum(size) OVER (ORDER BY letter DESC ROWS UNBOUNDED PRECEDING) AS total
    FROM sized)
SELECT letter, CASE WHEN total <= {LOOKED_BYTES} THEN (
    SELECT {{conditions}}
    FROM (SELECT ' ' || words || ' ' AS line FROM desk_words WHERE rowid = letter LIMIT 1) AS w) END
FROM totals ORDER BY letter DESC"""
"""The candidates that fit; the lines of those beyond `LOOKED_BYTES` are not read."""


_LETTER_BYTES: Final = 250
"""Of a letter's row and of each receipt's: names, ids, times, and most of these in indexes."""
_THREAD_BYTES: Final = 100


def letter_size(row: LetterRow) -> int:
    """Return about how many bytes a letter takes, with its receipts."""
    return text_size(row.body) + text_size(row.subject) + _LETTER_BYTES * (1 + len(row.recipients))


def thread_size(row: ThreadRow) -> int:
    """Return about how many bytes a thread takes."""
    return text_size(row.title) + _THREAD_BYTES


def add_letters(post: DeskPost) -> Verb[list[int]]:
    """Add what is in a post, as part of a transaction; see `LetterVerbs.post_letters`."""
    swarm = post.swarm
    yield from _change_threads(post)
    seqs = []
    for letter in post.letters:
        seqs.append((yield from _add_letter(swarm, letter, post.payer or letter.sender)))
    if post.settled:
        yield Batch(_SETTLE, [(swarm, *one) for one in post.settled])
    if post.asks:
        yield Batch(_ADD_ASK, [(swarm, *ask) for ask in post.asks])
    taken: Counter[str] = Counter()
    for thread in post.threads:
        taken[post.payer or thread.creator] += thread_size(thread)
    for letter in post.letters:
        taken[post.payer or letter.sender] += letter_size(letter)
    if taken:
        yield Batch(ADD_USE, [(swarm, *use) for use in sorted(taken.items())])
    return seqs


def _change_threads(post: DeskPost) -> Verb[None]:
    """Check who is a member of what, then add threads and members, and remove those who leave."""
    swarm = post.swarm
    for thread_id, name in post.members:
        if not (yield Query(_IS_MEMBER, (swarm, thread_id, name))):
            raise DeskConflict(f"'{name}' is no member of the thread '{thread_id}'")
    for thread_id, name in post.strangers:
        if (yield Query(_IS_MEMBER, (swarm, thread_id, name))):
            raise DeskConflict(f"'{name}' is a member of the thread '{thread_id}'")
    for thread in post.threads:
        if not (yield Change(_ADD_THREAD, (swarm, *thread[:4]))):
            raise DeskConflict(f"the thread '{thread.thread_id}' exists")
    for member in post.joined:
        if not (yield Change(_JOIN, (swarm, *member))):
            raise DeskConflict(f"'{member.name}' cannot join the thread '{member.thread_id}'")
    if post.left:
        yield Batch(_LEAVE, [(swarm, *one) for one in post.left])


def _add_letter(swarm: str, row: LetterRow, payer: str) -> Verb[int]:
    """Add a letter and its receipts; note what it answers, and the activity of its thread."""
    letter_id, sender, recipients, *_ = row
    if (yield Query(_FIND_LETTER, (swarm, letter_id))):
        raise DeskConflict(f"the letter '{letter_id}' exists")
    values = (swarm, *written(row[:-1]), payer, letter_size(row))
    (seq,) = yield Insert(_ADD_LETTER, "seq", [values])
    yield Change(_ADD_WORDS, (seq, letter_line(swarm, row)))
    owed_to = sender if row.wants_ack else ""
    names = dict.fromkeys(recipients)
    if names:
        yield Batch(_ADD_RECEIPT, [(swarm, name, seq, row.thread_id, owed_to) for name in names])
    if row.reply_to:
        yield Change(_ANSWER, (swarm, row.reply_to, sender, letter_id, row.created_at, seq))
    if row.thread_id:
        yield Change(_NOTE_ACTIVITY, (swarm, row.thread_id, row.created_at))
    return int(seq)


def note_shown(swarm: str, shown: Iterable[ShownRow]) -> Verb[None]:
    """Note letters as shown, as part of a transaction; see `LetterVerbs.show_letters`."""
    values = [(swarm, *row) for row in shown]
    if values:
        yield Batch(_SHOW, values)


class LetterVerbs(Verbs):
    """Threads, letters, and what became of them.

    A letter without a thread is visible to its sender and its recipients. One of a thread is
    visible to the members of the thread at the moment, whenever they joined.
    """

    @write
    def post_letters(self, post: DeskPost) -> Verb[list[int]]:
        """Commit a `DeskPost`; return the places of its letters.

        Raises:
            DeskConflict: a member is none, a stranger is one, a thread or a letter with that id
                exists, or who is to join a thread is a member or finds no such thread. Nothing is
                stored then.
        """
        return (yield from add_letters(post))

    @read
    def find_thread(self, swarm: str, thread_id: str) -> Verb[ThreadView | None]:
        """Return a thread with its members, or None."""
        text = """
            SELECT t.thread_id, title, creator, created_at, name
            FROM desk_threads AS t LEFT JOIN desk_members AS m
                ON m.swarm_name = t.swarm_name AND m.thread_id = t.thread_id
            WHERE t.swarm_name = $1 AND t.thread_id = $2 ORDER BY m.id"""
        rows = yield Query(text, (swarm, thread_id))
        if not rows:
            return None
        members = [row[4] for row in rows if row[4] is not None]
        return ThreadView(ThreadRow(*rows[0][:4]), members)

    @read
    def list_threads(
        self, swarm: str, name: str, *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> Verb[list[ThreadRow]]:
        """Return a page of the threads of a member, from the newest activity on.

        Their order is that of (``active_at``, id); ``after`` are those before the first.
        """
        behind = "" if after is None else "AND (active_at, m.thread_id) < ($4, $5)"
        text = f"""
            SELECT t.thread_id, title, creator, created_at, active_at
            FROM desk_members AS m JOIN desk_threads AS t
                ON t.swarm_name = m.swarm_name AND t.thread_id = m.thread_id
            WHERE m.swarm_name = $1 AND m.name = $2 {behind}
            ORDER BY active_at DESC, m.thread_id DESC LIMIT $3"""
        rows = yield Query(text, (swarm, name, limit, *(after or ())))
        return [ThreadRow(*row) for row in rows]

    @read
    def letters(
        self,
        swarm: str,
        name: str,
        which: LetterFilter,
        *,
        limit: int = 10,
        max_bytes: int | None = None,
    ) -> Verb[list[tuple[LetterRow, ReceiptRow]]]:
        """Return what a mailbox has, newest first.

        Without a thread these are the letters that it is a recipient of and that are visible to it;
        with one, all letters of the thread, its own too, if it is a member (none otherwise).
        Letters that it is no recipient of have an empty receipt.

        Args:
            swarm: The swarm.
            name: The mailbox.
            which: The selection of them.
            limit: At most so many.
            max_bytes: At most about so many bytes, but at least one letter: no more is read. A
                letter counts as in `letter_bytes`.
        """
        in_thread = bool(which.thread_id) and not which.unread
        text = _OF_THREAD if in_thread else _UNREAD if which.unread else _OF_BOX
        letter = "l.seq" if in_thread else "letter"
        values = Values((swarm, name))
        if which.thread_id:
            thread = values.place(which.thread_id)  # the third one
            text += "" if in_thread else f" AND r.thread_id = {thread}"
        if which.before is not None:
            text += f" AND {letter} < {values.place(which.before)}"
        if which.since:
            text += f" AND {_SINCE.format(letter=letter, since=values.place(which.since))}"
        return (yield from _page(text, values, "letter DESC", limit, max_bytes))

    @read
    def letters_by_id(
        self, swarm: str, letter_ids: Sequence[str]
    ) -> Verb[list[tuple[LetterRow, list[ReceiptRow]]]]:
        """Return letters with their receipts, newest first; unknown ones are left out.

        The receipts are in the order of the recipients. Whoever asks sees to it that the letters
        are for the eyes of its caller, and that they are not too many.
        """
        text = f"""
            SELECT {_LETTER} FROM desk_letters
            WHERE swarm_name = $1 AND letter_id {self.sql.among("$2")}
            ORDER BY seq DESC"""
        rows = yield Query(text, (swarm, self.sql.list(letter_ids)))
        letters = [_as_letter(row) for row in rows]
        text = f"""
            SELECT letter, name, {_RECEIPT} FROM desk_receipts
            WHERE letter {self.sql.among("$1", "bigint")}"""
        rows = yield Query(text, (self.sql.list([letter.seq for letter in letters]),))
        found = {(seq, name): rest for seq, name, *rest in rows}
        return [
            (
                letter,
                [
                    ReceiptRow(letter.letter_id, name, *found[letter.seq, name])
                    for name in dict.fromkeys(letter.recipients)
                    if (letter.seq, name) in found
                ],
            )
            for letter in letters
        ]

    @read
    def search_letters(
        self,
        swarm: str,
        name: str,
        query: LetterQuery,
        *,
        thread_id: str = "",
        before: int | None = None,
        limit: int = 10,
        max_bytes: int | None = None,
    ) -> Verb[FoundLetters]:
        """Return what a mailbox may see and a query fits, newest first.

        Args:
            swarm: The swarm.
            name: The mailbox: sender or recipient of the letters, or a member of their threads, of
                which those count that `mail.db.desk_search.MAX_THREADS` tells.
            query: The query.
            thread_id: Only letters of this thread.
            before: Only letters with a place below this one.
            limit: At most so many.
            max_bytes: As for `letters`.
        """
        marks = (yield from _marks(swarm, name, thread_id)) if query.terms else []
        if not marks:
            return FoundLetters([], None)
        most = LOOKED_AT if query.parts else limit + 1
        found = yield from self._look(marks, query, MANY if before is None else before, most)
        looked = [(seq, fits) for seq, fits in found if fits is not None]
        fitting = [seq for seq, fits in looked if fits]
        older = looked[-1][0] if len(found) == most or len(looked) < len(found) else None
        seqs = fitting[:limit]
        if not seqs:
            return FoundLetters([], older)
        text = f"{_WITH_RECEIPTS} WHERE l.seq {self.sql.among('$3', 'bigint')}"
        values = [swarm, name, self.sql.list(seqs)]
        letters = yield from _page(text, values, "letter DESC", limit, max_bytes)
        if len(letters) < len(fitting):
            older = letters[-1][0].seq if letters else seqs[-1]
        return FoundLetters(letters, older)

    def _look(
        self, marks: Sequence[str], query: LetterQuery, before: int, limit: int
    ) -> Verb[list[tuple[int, bool | None]]]:
        """Return candidates, newest first, each with whether it fits.

        That is None for the last ones, which were not looked at, if there were too many bytes.
        """
        which = self.sql.matching
        values: list[object] = [which.query(marks, query.wanted, query.unwanted), before, limit]
        text = f"""
            SELECT rowid AS letter FROM desk_words
            WHERE {which.condition.format("$1")} AND {which.place} < $2
            ORDER BY {which.place} DESC LIMIT $3"""
        if not query.parts:
            return [(int(letter), True) for (letter,) in (yield Query(text, values))]
        conditions = []
        for part, there in (*((p, ">") for p in query.present), *((p, "=") for p in query.absent)):
            values.append(part)
            conditions.append(f"{which.find}(line, CAST(${len(values)} AS TEXT)) {there} 0")
        text = _LOOK.format(candidates=text, conditions=" AND ".join(conditions))
        rows = yield Query(text, values)
        return [(int(letter), None if fits is None else bool(fits)) for letter, fits in rows]

    @write
    def index_letters(self, limit: int) -> Verb[int]:
        """Let some letters, of any swarm, be found that were stored before letters could be.

        Returns:
            How many were looked at: 0 when there are no more.
        """
        text = """
            SELECT seq, swarm_name, sender, recipients, thread_id, subject, substr(body, 1, $2)
            FROM desk_unindexed JOIN desk_letters ON seq = letter ORDER BY letter LIMIT $1"""
        rows = yield Query(text, (limit, SEARCHED_CHARACTERS))
        for seq, swarm, sender, recipients, thread_id, subject, body in rows:
            names = tuple(json.loads(recipients))
            row = LetterRow("", sender, names, "direct", body, "", subject, thread_id)
            # Another process may have been faster.
            if (yield Change("DELETE FROM desk_unindexed WHERE letter = $1", (seq,))):
                yield Change(_ADD_WORDS, (seq, letter_line(swarm, row)))
        return len(rows)

    @read
    def open_asks(self, swarm: str, task_owner: str, task_ids: Sequence[str]) -> Verb[list[AskRow]]:
        """Return the answers that are waited for in some tasks, in the order of writing.

        Args:
            swarm: The swarm.
            task_owner: The owner of the tasks, as ``role:id``.
            task_ids: The tasks, at most a hundred.
        """
        text = f"""
            SELECT {_ASK} FROM desk_asks
            WHERE swarm_name = $1 AND task_owner = $2 AND task_id {self.sql.among("$3")}
            ORDER BY created_at, letter_id, asked"""
        rows = yield Query(text, (swarm, task_owner, self.sql.list(task_ids)))
        return [AskRow(*row) for row in rows]

    @read
    def newest_ask(self, swarm: str, asker: str, asked: str) -> Verb[AskRow | None]:
        """Return the newest letter to which somebody waits for somebody's answer, in any task."""
        text = f"""
            SELECT {_ASK} FROM desk_asks
            WHERE swarm_name = $1 AND asker = $2 AND asked = $3
            ORDER BY created_at DESC, letter_id DESC LIMIT 1"""
        rows = yield Query(text, (swarm, asker, asked))
        return AskRow(*rows[0]) if rows else None

    @read
    def old_asks(
        self, swarm: str, before: str, limit: int, after: AskRow | None = None
    ) -> Verb[list[AskRow]]:
        """Return a page of what was asked before a time and is still waited for, oldest first.

        Args:
            swarm: The swarm.
            before: The time.
            limit: At most so many.
            after: The one before the first.
        """
        text = f"""
            SELECT {_ASK} FROM desk_asks WHERE swarm_name = $1 AND created_at < $2
                AND (created_at, letter_id, asked) > ($3, $4, $5)
            ORDER BY created_at, letter_id, asked LIMIT $6"""
        place = (after.created_at, after.letter_id, after.asked) if after else ("", "", "")
        rows = yield Query(text, (swarm, before, *place, limit))
        return [AskRow(*row) for row in rows]

    @read
    def unread_letters(self, swarm: str, name: str, limit: int = 1000) -> Verb[int]:
        """Return how many visible letters were not shown to a mailbox yet; at most ``limit``."""
        text = f"""
            SELECT count(*) FROM (
                SELECT 1 FROM desk_receipts AS r
                WHERE swarm_name = $1 AND name = $2 AND shown_at = '' AND {_VISIBLE} LIMIT $3
            ) AS unread"""
        ((count,),) = yield Query(text, (swarm, name, limit))
        return int(count)

    @write
    def show_letters(
        self,
        swarm: str,
        name: str,
        letter_ids: Sequence[str],
        moment: str,
        page: PageRow | None = None,
    ) -> Verb[bool]:
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
        if page is not None:
            if not (yield Change(_ADD_PAGE, (swarm, name, *written(page)))):
                return False
            yield Change(_DROP_PAGES, (swarm, name))
        yield from note_shown(swarm, (ShownRow(each, name, 0, moment) for each in letter_ids))
        return True

    @read
    def find_page(self, swarm: str, name: str, request_id: str) -> Verb[PageRow | None]:
        """Return the page that a mailbox got for a request, or None."""
        text = f"""
            SELECT {_PAGE} FROM desk_pages
            WHERE swarm_name = $1 AND name = $2 AND request_id = $3"""
        rows = yield Query(text, (swarm, name, request_id))
        return _as_page(rows[0]) if rows else None

    @write
    def acknowledge_letter(
        self, swarm: str, name: str, letter_id: str, moment: str, note: str = ""
    ) -> Verb[ReceiptRow | None]:
        """Note that a recipient acknowledges a letter; it counts as shown then.

        Returns:
            The receipt as it is now. None when it was acknowledged before, or is not for that
            mailbox or not visible to it any more; nothing is changed.
        """
        text = f"""
            UPDATE desk_receipts AS r
            SET acked_at = $4, ack_note = $5, owed_to = '',
                shown_at = CASE WHEN shown_at = '' THEN $4 ELSE shown_at END
            WHERE swarm_name = $1 AND name = $3 AND letter = ({_FIND_LETTER}) AND acked_at = ''
                AND {_VISIBLE}
            RETURNING {_RECEIPT}"""
        rows = yield Query(text, (swarm, letter_id, name, moment, note))
        return ReceiptRow(letter_id, name, *rows[0]) if rows else None

    @read
    def overdue_letters(
        self,
        swarm: str,
        sender: str,
        before: str,
        limit: int = 100,
        max_bytes: int | None = None,
    ) -> Verb[list[tuple[LetterRow, ReceiptRow]]]:
        """Return what a mailbox sent before a time and still wants acknowledged, oldest first.

        There is one entry for each recipient that it is visible to and that has neither
        acknowledged nor answered it; none of a thread that the sender has left. For ``max_bytes``
        see `letters`.
        """
        text = f"""
            SELECT letter, name, {_RECEIPT} FROM desk_receipts AS r
            WHERE swarm_name = $1 AND owed_to = $2 AND owed_to <> '' AND {_VISIBLE}
                AND {_VISIBLE_TO_SENDER}
                AND (SELECT created_at FROM desk_letters WHERE seq = letter) < $3"""
        values = (swarm, sender, before)
        return (yield from _page(text, values, "letter, name", limit, max_bytes))

    @read
    def letters_of_task(
        self,
        swarm: str,
        task: tuple[str, str],
        sender: str,
        *,
        recipient: str = "",
        unsettled_before: str = "",
        limit: int = 100,
        max_bytes: int | None = None,
    ) -> Verb[list[tuple[LetterRow, ReceiptRow]]]:
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
        text = f"""
            SELECT letter, name, {_RECEIPT} FROM desk_letters AS l
            JOIN desk_receipts AS r ON r.letter = l.seq
            WHERE l.swarm_name = $1 AND task_owner = $2 AND task_id = $3 AND task_id <> ''
                AND sender = $4"""
        values = Values((swarm, *task, sender))
        if recipient:
            text += f" AND name = {values.place(recipient)}"
        if unsettled_before:
            before = values.place(unsettled_before)
            text += f" AND acked_at = '' AND answered_at = '' AND l.created_at < {before}"
        return (yield from _page(text, values, "letter DESC, name", limit, max_bytes))

    @read
    def letter_bytes(self, swarm: str, name: str) -> Verb[int]:
        """Return about how many bytes of threads, letters and files count for a mailbox.

        How many each of them counts for is told by `letter_size`, `thread_size` and
        `mail.db.files.file_size`; for whom, by ``DeskPost.payer``.
        """
        text = "SELECT bytes FROM desk_use WHERE swarm_name = $1 AND name = $2"
        rows = yield Query(text, (swarm, name))
        return int(rows[0][0]) if rows else 0

    @write
    def drop_letters(
        self, swarm: str, before: str, limit: int, after: LetterPlace | None = None
    ) -> Verb[DroppedLetters]:
        """Look at letters that were accepted before a time, oldest first, and remove some.

        A letter stays if it is visible to a recipient who was not shown it. Receipts go with their
        letters; threads stay.

        Args:
            swarm: The swarm.
            before: The time.
            limit: At most so many are looked at.
            after: Behind which one, as the call before told.
        """
        text = f"""
            SELECT created_at, seq, {_REMOVABLE} FROM (
                SELECT created_at, seq FROM desk_letters
                WHERE swarm_name = $1 AND created_at < $2 AND (created_at, seq) > ($3, $4)
                ORDER BY created_at, seq LIMIT $5
            ) AS l ORDER BY created_at, seq"""
        seen = yield Query(text, (swarm, before, *(after or LetterPlace()), limit))
        old = [seq for _, seq, removable in seen if removable]
        removed = (yield from self._drop(swarm, old)) if old else 0
        return DroppedLetters(removed, LetterPlace(*seen[-1][:2]) if len(seen) == limit else None)

    def _drop(self, swarm: str, seqs: Sequence[int]) -> Verb[int]:
        """Remove letters with all that belongs to them; who paid for them does no more."""
        these = self.sql.among("$1", "bigint")
        values = (self.sql.list(seqs),)
        yield Change(f"DELETE FROM desk_receipts WHERE letter {these}", values)
        yield Change(f"DELETE FROM desk_words WHERE rowid {these}", values)
        yield Change(f"DELETE FROM desk_unindexed WHERE letter {these}", values)
        text = f"DELETE FROM desk_letters WHERE seq {these} RETURNING payer, size"
        rows = yield Query(text, values)
        freed: Counter[str] = Counter()
        for payer, size in rows:
            freed[payer] += size
        if freed:
            yield Batch(ADD_USE, [(swarm, payer, -size) for payer, size in sorted(freed.items())])
        return len(rows)


def _page(
    text: str, values: Sequence[object], order: str, limit: int, max_bytes: int | None
) -> Verb[list[tuple[LetterRow, ReceiptRow]]]:
    """Return a page of letters. Their sizes are looked at first, and the rest is not read.

    Args:
        text: A query for letter, name and `_RECEIPT`.
        values: Its parameters.
        order: The order of the page, in these columns.
        limit: At most so many.
        max_bytes: See `LetterVerbs.letters`.
    """
    first = len(values) + 1
    text = f"""
        WITH page AS ({text} ORDER BY {order} LIMIT ${first}),
        sized AS (
            SELECT page.*, size, sum(size) OVER (
                ORDER BY {order} ROWS UNBOUNDED PRECEDING) AS total
            FROM page JOIN desk_letters ON seq = letter)
        SELECT {_LETTER}, name, {_RECEIPT} FROM sized JOIN desk_letters ON seq = letter
        WHERE total <= CAST(${first + 1} AS BIGINT) OR total = sized.size
        ORDER BY {order}"""
    rows = yield Query(text, (*values, limit, MANY if max_bytes is None else max_bytes))
    letters = [_as_letter(row[:15]) for row in rows]
    return [
        (letter, ReceiptRow(letter.letter_id, *row[15:]))
        for letter, row in zip(letters, rows, strict=True)
    ]


def _marks(swarm: str, name: str, thread_id: str) -> Verb[list[str]]:
    """Return the marks of the letters that a mailbox may see."""
    if thread_id:
        rows = yield Query(_IS_MEMBER, (swarm, thread_id, name))
        return [thread_mark(swarm, thread_id)] if rows else []
    text = """
        SELECT thread_id FROM desk_members WHERE swarm_name = $1 AND name = $2
        ORDER BY id DESC LIMIT $3"""
    rows = yield Query(text, (swarm, name, MAX_THREADS))
    return [mailbox_mark(swarm, name), *(thread_mark(swarm, row[0]) for row in rows)]
