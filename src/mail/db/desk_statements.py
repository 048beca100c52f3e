"""The mail desk in SQL, written once for SQLite and PostgreSQL: `mail.db.desk.DeskRecords`.

What is read of a mailbox comes from its receipts: whatever others have, no more rows are looked at
than are returned, but for those of threads that it has left. A page is bounded before the letters
themselves are read.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import ClassVar, Final, NamedTuple

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
from mail.db.rows import letter_size, list_text, thread_size
from mail.db.statements import MANY, PARAMETERS, Dialect, Row, Step
from mail.errors import DeskConflict

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

_THE_LETTER: Final = "(SELECT seq FROM desk_letters WHERE swarm_name = $1 AND letter_id = $2)"

_IS_MEMBER: Final = (
    "SELECT 1 FROM desk_members WHERE swarm_name = $1 AND thread_id = $2 AND name = $3"
)

_IS_STRANGER: Final = f"SELECT 1 WHERE NOT EXISTS ({_IS_MEMBER})"

_ADD_THREAD: Final = """
INSERT INTO desk_threads (swarm_name, thread_id, title, creator, created_at)
VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING RETURNING 1
"""

_JOIN: Final = """
INSERT INTO desk_members (swarm_name, thread_id, name, joined_at, added_by, active_at)
SELECT swarm_name, thread_id, $3, $4, $5, $4 FROM desk_threads
WHERE swarm_name = $1 AND thread_id = $2
ON CONFLICT DO NOTHING RETURNING 1
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
INSERT INTO desk_letters (
    swarm_name, letter_id, sender, recipients, kind, body, created_at, subject, thread_id, reply_to,
    file_id, urgent, wants_ack, task_owner, task_id, payer, size, latest
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
    CASE WHEN $7 > coalesce(({_LATEST}), '') THEN $7 ELSE ({_LATEST}) END)
ON CONFLICT DO NOTHING RETURNING seq
"""

_ADD_WORDS: Final = f"INSERT INTO desk_words (rowid, words) SELECT {_THE_LETTER}, $3"

_ADD_OLD_WORDS: Final = "INSERT INTO desk_words (rowid, words) VALUES ($1, $2)"

_NOT_OLD_NOW: Final = "DELETE FROM desk_unindexed WHERE letter = $1 RETURNING 1"

_ADD_RECEIPT: Final = f"""
INSERT INTO desk_receipts (
    swarm_name, name, letter, thread_id, shown_at, turn, acked_at, owed_to, ack_note,
    answered_at, answer_id
) VALUES ($1, $3, {_THE_LETTER}, $4, '', 0, '', $5, '', '', '')
"""

ADD_USE: Final = """
INSERT INTO desk_use (swarm_name, name, bytes) VALUES ($1, $2, $3)
ON CONFLICT (swarm_name, name) DO UPDATE SET bytes = desk_use.bytes + excluded.bytes
"""

_SHOW: Final = f"""
UPDATE desk_receipts SET shown_at = $5, turn = $4
WHERE swarm_name = $1 AND name = $3 AND letter = {_THE_LETTER} AND shown_at = ''
"""

_ANSWER: Final = f"""
UPDATE desk_receipts SET answered_at = $5, answer_id = $4, owed_to = ''
WHERE swarm_name = $1 AND name = $3 AND letter = {_THE_LETTER} AND answered_at = '' AND 1 = (
    SELECT 1 FROM desk_letters AS a
    JOIN desk_receipts AS got ON got.letter = a.seq
    JOIN desk_letters AS l ON l.swarm_name = $1 AND l.letter_id = $2 AND l.sender = got.name
    WHERE a.swarm_name = $1 AND a.letter_id = $4)
"""
"""Note that a letter is answered, by one that its sender got."""

_ASK: Final = "letter_id, asked, asker, task_owner, task_id, thread_id, created_at"
"""The columns of an `AskRow`."""

_ADD_ASK: Final = f"""
INSERT INTO desk_asks (swarm_name, {_ASK})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING
"""

_SETTLE: Final = """
DELETE FROM desk_asks WHERE swarm_name = $1 AND letter_id = $2 AND asked = $3
"""

_ADD_PAGE: Final = """
INSERT INTO desk_pages (swarm_name, name, request_id, letter_ids, created_at)
VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING RETURNING 1
"""

_DROP_PAGES: Final = f"""
DELETE FROM desk_pages WHERE id IN (
    SELECT id FROM desk_pages WHERE swarm_name = $1 AND name = $2
    ORDER BY id DESC LIMIT 10 OFFSET {PAGES_KEPT})
"""

_LETTER: Final = """letter_id, sender, recipients, kind, body, created_at, subject,
    desk_letters.thread_id, reply_to, file_id, urgent, wants_ack, task_owner, task_id, seq"""
"""The columns of a `LetterRow`."""

_RECEIPT: Final = "shown_at, turn, acked_at, ack_note, answered_at, answer_id"
"""Those of a `ReceiptRow`, but for its letter and its name."""


def post_steps(post: DeskPost) -> list[Step]:
    """Return the statements that commit a `DeskPost`, what it demands first."""
    swarm = post.swarm
    steps = [
        Step(_IS_MEMBER, (swarm, *one), f"'{one[1]}' is no member of the thread '{one[0]}'")
        for one in post.members
    ]
    steps += [
        Step(_IS_STRANGER, (swarm, *one), f"'{one[1]}' is a member of the thread '{one[0]}'")
        for one in post.strangers
    ]
    steps += [
        Step(_ADD_THREAD, (swarm, *row[:4]), f"the thread '{row.thread_id}' exists")
        for row in post.threads
    ]
    steps += [
        Step(_JOIN, (swarm, *row), f"'{row.name}' cannot join the thread '{row.thread_id}'")
        for row in post.joined
    ]
    if post.left:
        steps.append(Step(_LEAVE, each=[(swarm, *one) for one in post.left]))
    for letter in post.letters:
        steps += _letter_steps(swarm, letter, post.payer or letter.sender)
    if post.settled:
        steps.append(Step(_SETTLE, each=[(swarm, *one) for one in post.settled]))
    if post.asks:
        steps.append(Step(_ADD_ASK, each=[(swarm, *row) for row in post.asks]))
    return [*steps, *_use_steps(post)]


def _letter_steps(swarm: str, row: LetterRow, payer: str) -> list[Step]:
    letter_id, sender, recipients, *rest, _ = row
    values = (swarm, letter_id, sender, list_text(recipients), *rest, payer, letter_size(row))
    owed_to = sender if row.wants_ack else ""
    receipts = [
        (swarm, letter_id, name, row.thread_id, owed_to) for name in dict.fromkeys(recipients)
    ]
    answer = (swarm, row.reply_to, sender, letter_id, row.created_at)
    active = (swarm, row.thread_id, row.created_at)
    return [
        Step(_ADD_LETTER, values, f"the letter '{letter_id}' exists"),
        Step(_ADD_WORDS, each=[(swarm, letter_id, letter_line(swarm, row))]),
        Step(_ADD_RECEIPT, each=receipts),
        *((Step(_ANSWER, each=[answer]),) if row.reply_to else ()),
        *((Step(_NOTE_ACTIVITY, each=[active]),) if row.thread_id else ()),
    ]


def _use_steps(post: DeskPost) -> list[Step]:
    taken: Counter[str] = Counter()
    for thread in post.threads:
        taken[post.payer or thread.creator] += thread_size(thread)
    for letter in post.letters:
        taken[post.payer or letter.sender] += letter_size(letter)
    return [Step(ADD_USE, each=[(post.swarm, *use) for use in sorted(taken.items())])]


def shown_steps(swarm: str, shown: Iterable[ShownRow]) -> list[Step]:
    """Return the statements that note what was shown."""
    return [Step(_SHOW, each=[(swarm, *row) for row in shown])]


class _Page(NamedTuple):
    """A query for letters and one's receipts of them, to be bounded and ordered, and its values.

    Attributes:
        text: Selects letter, name and `_RECEIPT`.
        order: What of them orders the page; the two ways of writing it are for inside and outside.
        values: The limit and the bytes come behind them.
    """

    text: str
    order: str
    values: list[object]


class Matching(NamedTuple):
    """How a database's index of words is asked.

    Attributes:
        condition: Of lines that the query in ``{}`` finds.
        quote: Stands around a word of the query.
        both, either, without: Stand between its parts.
        find: The function that returns the place of a text in another, or 0.
        place: The number of the letter. Where rows can be read in its order, without the index of
            words, it is written so that they are not.
    """

    condition: str
    quote: str
    both: str
    either: str
    without: str
    find: str
    place: str

    def query(self, marks: Sequence[str], wanted: Sequence[str], unwanted: Sequence[str]) -> str:
        """Return a query for lines with one of the marks, all of these words, none of those."""
        text = self.both.join((self._any(marks), *map(self._quoted, wanted)))
        return f"({text}){self.without}{self._any(unwanted)}" if unwanted else text

    def _any(self, words: Sequence[str]) -> str:
        return f"({self.either.join(map(self._quoted, words))})"

    def _quoted(self, word: str) -> str:
        return f"{self.quote}{word}{self.quote}"


class DeskStatements(Dialect):
    """`mail.db.desk.DeskRecords`.

    Attributes:
        _MATCHING: How words are looked up.
    """

    _MATCHING: ClassVar[Matching]

    async def post_letters(self, post: DeskPost) -> list[int]:
        steps = post_steps(post)
        found = await self._run(steps)
        return [
            int(rows[0][0])
            for step, rows in zip(steps, found, strict=True)
            if step.text is _ADD_LETTER
        ]

    async def find_thread(
        self, swarm: str, thread_id: str
    ) -> tuple[ThreadRow, list[MemberRow]] | None:
        text = """
            SELECT t.thread_id, title, creator, created_at, m.thread_id, name, joined_at, added_by
            FROM desk_threads AS t LEFT JOIN desk_members AS m
                ON m.swarm_name = t.swarm_name AND m.thread_id = t.thread_id
            WHERE t.swarm_name = $1 AND t.thread_id = $2 ORDER BY m.id"""
        rows = await self._fetch(_tuples, text, swarm, thread_id)
        if not rows:
            return None
        members = [MemberRow(*row[4:]) for row in rows if row[4] is not None]
        return ThreadRow(*rows[0][:4]), members

    async def list_threads(
        self, swarm: str, name: str, *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[ThreadRow]:
        behind = "" if after is None else "AND (active_at, m.thread_id) < ($4, $5)"
        text = f"""
            SELECT t.thread_id, title, creator, created_at, active_at
            FROM desk_members AS m JOIN desk_threads AS t
                ON t.swarm_name = m.swarm_name AND t.thread_id = m.thread_id
            WHERE m.swarm_name = $1 AND m.name = $2 {behind}
            ORDER BY active_at DESC, m.thread_id DESC LIMIT $3"""
        rows = await self._fetch(_tuples, text, swarm, name, limit, *(after or ()))
        return [ThreadRow(*row) for row in rows]

    async def letters(
        self,
        swarm: str,
        name: str,
        which: LetterFilter,
        *,
        limit: int = 10,
        max_bytes: int | None = None,
    ) -> list[tuple[LetterRow, ReceiptRow]]:
        in_thread = bool(which.thread_id) and not which.unread
        text = _OF_THREAD if in_thread else _UNREAD if which.unread else _OF_BOX
        letter = "l.seq" if in_thread else "letter"
        values: list[object] = [swarm, name]

        def parameter(value: object) -> str:
            values.append(value)
            return f"${len(values)}"

        if in_thread:
            text += f" AND l.thread_id = {parameter(which.thread_id)} AND l.thread_id <> ''"
            text += f" AND {_MEMBER_NOW.format(f'${len(values)}')}"
        elif which.thread_id:
            text += f" AND r.thread_id = {parameter(which.thread_id)}"
        if which.before is not None:
            text += f" AND {letter} < {parameter(which.before)}"
        if which.since:
            text += f" AND {_SINCE.format(letter=letter, since=parameter(which.since))}"
        page = _Page(text, f"{letter} DESC", values)
        return await self._page(page, "letter DESC", limit, max_bytes)

    async def _page(
        self, page: _Page, order: str, limit: int, max_bytes: int | None
    ) -> list[tuple[LetterRow, ReceiptRow]]:
        """Return a page of letters. Their sizes are looked at first, and the rest is not read."""
        first = len(page.values) + 1
        text = f"""
            WITH page AS ({page.text} ORDER BY {page.order} LIMIT ${first}),
            sized AS (
                SELECT page.*, size, sum(size) OVER (
                    ORDER BY {order} ROWS UNBOUNDED PRECEDING) AS total
                FROM page JOIN desk_letters ON seq = letter)
            SELECT {_LETTER}, name, {_RECEIPT} FROM sized JOIN desk_letters ON seq = letter
            WHERE total <= CAST(${first + 1} AS BIGINT) OR total = sized.size
            ORDER BY {order}"""
        most = MANY if max_bytes is None else max_bytes
        return await self._fetch(_entries, text, *page.values, limit, most)

    async def letters_by_id(
        self, swarm: str, letter_ids: Sequence[str]
    ) -> list[tuple[LetterRow, list[ReceiptRow]]]:
        wanted = list(dict.fromkeys(letter_ids))
        letters: dict[int, LetterRow] = {}
        receipts: dict[int, dict[str, ReceiptRow]] = {}
        for at in range(0, len(wanted), PARAMETERS):
            some = wanted[at : at + PARAMETERS]
            text = f"""
                SELECT {_LETTER} FROM desk_letters
                WHERE swarm_name = $1 AND letter_id IN ({_places(2, some)})"""
            found = [_as_letter(row) for row in await self._fetch(_tuples, text, swarm, *some)]
            letters |= {letter.seq: letter for letter in found}
            seqs = [letter.seq for letter in found]
            text = f"""
                SELECT letter, name, {_RECEIPT} FROM desk_receipts
                WHERE letter IN ({_places(1, seqs)})"""
            rows = await self._fetch(_tuples, text, *seqs) if seqs else []
            for seq, name, *rest in rows:
                receipt = ReceiptRow(letters[seq].letter_id, name, *rest)
                receipts.setdefault(seq, {})[name] = receipt
        return [
            (letters[seq], _in_order(letters[seq], receipts.get(seq, {})))
            for seq in sorted(letters, reverse=True)
        ]

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
        if not query.terms:
            return FoundLetters([], None)
        marks = await self._marks(swarm, name, thread_id)
        looked_at = LOOKED_AT if query.parts else limit + 1
        place = MANY if before is None else before
        looked: list[tuple[int, bool | None]] = []
        for at in range(0, len(marks), PARAMETERS):
            found = await self._look(marks[at : at + PARAMETERS], query, place, looked_at)
            looked = _looked_at(sorted((*looked, *found), reverse=True)[:looked_at])
        more = len(looked) == looked_at or any(fits is None for _, fits in looked)
        looked = [each for each in looked if each[1] is not None]
        fitting = [seq for seq, fits in looked if fits]
        more = more or len(fitting) > limit
        seqs = fitting[:limit]
        if not seqs:
            return FoundLetters([], looked[-1][0] if more else None)
        text = f"{_WITH_RECEIPTS} WHERE l.seq IN ({_places(3, seqs)})"
        page = _Page(text, "l.seq DESC", [swarm, name, *seqs])
        letters = await self._page(page, "letter DESC", len(seqs), max_bytes)
        if len(fitting) > limit or len(letters) < len(seqs):
            return FoundLetters(letters, letters[-1][0].seq if letters else seqs[-1])
        return FoundLetters(letters, looked[-1][0] if more else None)

    async def _marks(self, swarm: str, name: str, thread_id: str) -> list[str]:
        """Return the marks of the letters that a mailbox may see."""
        if thread_id:
            rows = await self._fetch(_tuples, _IS_MEMBER, swarm, thread_id, name)
            return [thread_mark(swarm, thread_id)] if rows else []
        text = """
            SELECT thread_id FROM desk_members WHERE swarm_name = $1 AND name = $2
            ORDER BY id DESC LIMIT $3"""
        rows = await self._fetch(_tuples, text, swarm, name, MAX_THREADS)
        return [mailbox_mark(swarm, name), *(thread_mark(swarm, row[0]) for row in rows)]

    async def _look(
        self, marks: Sequence[str], query: LetterQuery, before: int, limit: int
    ) -> list[tuple[int, bool | None]]:
        """Return candidates, newest first, each with whether it fits; None if nobody looked."""
        which = self._MATCHING
        values: list[object] = [which.query(marks, query.wanted, query.unwanted), before, limit]
        text = f"""
            SELECT rowid AS letter FROM desk_words
            WHERE {which.condition.format("$1")} AND {which.place} < $2
            ORDER BY {which.place} DESC LIMIT $3"""
        if not query.parts:
            return [(int(letter), True) for (letter,) in await self._fetch(_tuples, text, *values)]
        conditions = []
        for part, there in (*((p, ">") for p in query.present), *((p, "=") for p in query.absent)):
            values.append(part)
            conditions.append(f"{which.find}(line, CAST(${len(values)} AS TEXT)) {there} 0")
        text = _LOOK.format(candidates=text, conditions=" AND ".join(conditions))
        rows = await self._fetch(_tuples, text, *values)
        return [(int(letter), None if fits is None else bool(fits)) for letter, fits in rows]

    async def index_letters(self, limit: int) -> int:
        text = """
            SELECT seq, swarm_name, sender, recipients, thread_id, subject, substr(body, 1, $2)
            FROM desk_unindexed JOIN desk_letters ON seq = letter ORDER BY letter LIMIT $1"""
        rows = await self._fetch(_tuples, text, limit, SEARCHED_CHARACTERS)
        steps = []
        for seq, swarm, sender, recipients, thread_id, subject, body in rows:
            names = tuple(json.loads(recipients))
            row = LetterRow("", sender, names, "direct", body, "", subject, thread_id)
            steps.append(Step(_NOT_OLD_NOW, (seq,), "another process was faster"))
            steps.append(Step(_ADD_OLD_WORDS, each=[(seq, letter_line(swarm, row))]))
        with suppress(DeskConflict):
            await self._run(steps)
        return len(rows)

    async def open_asks(self, swarm: str, task_owner: str, task_ids: Sequence[str]) -> list[AskRow]:
        places = ", ".join(f"${number}" for number in range(3, 3 + len(task_ids)))
        text = f"""
            SELECT {_ASK} FROM desk_asks
            WHERE swarm_name = $1 AND task_owner = $2 AND task_id IN ({places})
            ORDER BY created_at, letter_id, asked"""
        rows = await self._fetch(_tuples, text, swarm, task_owner, *task_ids)
        return [AskRow(*row) for row in rows]

    async def newest_ask(self, swarm: str, asker: str, asked: str) -> AskRow | None:
        text = f"""
            SELECT {_ASK} FROM desk_asks
            WHERE swarm_name = $1 AND asker = $2 AND asked = $3
            ORDER BY created_at DESC, letter_id DESC LIMIT 1"""
        rows = await self._fetch(_tuples, text, swarm, asker, asked)
        return AskRow(*rows[0]) if rows else None

    async def old_asks(
        self, swarm: str, before: str, limit: int, after: AskRow | None = None
    ) -> list[AskRow]:
        text = f"""
            SELECT {_ASK} FROM desk_asks WHERE swarm_name = $1 AND created_at < $2
                AND (created_at, letter_id, asked) > ($3, $4, $5)
            ORDER BY created_at, letter_id, asked LIMIT $6"""
        place = (after.created_at, after.letter_id, after.asked) if after else ("", "", "")
        rows = await self._fetch(_tuples, text, swarm, before, *place, limit)
        return [AskRow(*row) for row in rows]

    async def unread_letters(self, swarm: str, name: str, limit: int = 1000) -> int:
        text = f"""
            SELECT count(*) FROM (
                SELECT 1 FROM desk_receipts AS r
                WHERE swarm_name = $1 AND name = $2 AND shown_at = '' AND {_VISIBLE} LIMIT $3
            ) AS unread"""
        ((count,),) = await self._fetch(_tuples, text, swarm, name, limit)
        return int(count)

    async def show_letters(
        self,
        swarm: str,
        name: str,
        letter_ids: Sequence[str],
        moment: str,
        page: PageRow | None = None,
    ) -> bool:
        steps = shown_steps(swarm, (ShownRow(each, name, 0, moment) for each in letter_ids))
        if page is not None:
            values = (swarm, name, page.request_id, list_text(page.letter_ids), page.created_at)
            steps[:0] = [
                Step(_ADD_PAGE, values, "the request has its page"),
                Step(_DROP_PAGES, (swarm, name)),
            ]
        try:
            await self._run(steps)
        except DeskConflict:
            return False
        return True

    async def find_page(self, swarm: str, name: str, request_id: str) -> PageRow | None:
        text = """
            SELECT request_id, letter_ids, created_at FROM desk_pages
            WHERE swarm_name = $1 AND name = $2 AND request_id = $3"""
        for key, letter_ids, created_at in await self._fetch(
            _tuples, text, swarm, name, request_id
        ):
            return PageRow(key, tuple(json.loads(letter_ids)), created_at)
        return None

    async def acknowledge_letter(
        self, swarm: str, name: str, letter_id: str, moment: str, note: str = ""
    ) -> ReceiptRow | None:
        text = f"""
            UPDATE desk_receipts AS r
            SET acked_at = $4, ack_note = $5, owed_to = '',
                shown_at = CASE WHEN shown_at = '' THEN $4 ELSE shown_at END
            WHERE swarm_name = $1 AND name = $3 AND letter = {_THE_LETTER} AND acked_at = ''
                AND {_VISIBLE}
            RETURNING {_RECEIPT}"""
        rows = await self._change(text, swarm, letter_id, name, moment, note)
        return ReceiptRow(letter_id, name, *rows[0]) if rows else None

    async def overdue_letters(
        self,
        swarm: str,
        sender: str,
        before: str,
        limit: int = 100,
        max_bytes: int | None = None,
    ) -> list[tuple[LetterRow, ReceiptRow]]:
        text = f"""
            SELECT letter, name, {_RECEIPT} FROM desk_receipts AS r
            WHERE swarm_name = $1 AND owed_to = $2 AND owed_to <> '' AND {_VISIBLE}
                AND {_VISIBLE_TO_SENDER}
                AND (SELECT created_at FROM desk_letters WHERE seq = letter) < $3"""
        page = _Page(text, "letter, name", [swarm, sender, before])
        return await self._page(page, "letter, name", limit, max_bytes)

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
        text = f"""
            SELECT letter, name, {_RECEIPT} FROM desk_letters AS l
            JOIN desk_receipts AS r ON r.letter = l.seq
            WHERE l.swarm_name = $1 AND task_owner = $2 AND task_id = $3 AND task_id <> ''
                AND sender = $4"""
        values: list[object] = [swarm, *task, sender]
        if recipient:
            values.append(recipient)
            text += f" AND name = ${len(values)}"
        if unsettled_before:
            values.append(unsettled_before)
            text += f" AND acked_at = '' AND answered_at = '' AND l.created_at < ${len(values)}"
        page = _Page(text, "letter DESC, name", values)
        return await self._page(page, "letter DESC, name", limit, max_bytes)

    async def letter_bytes(self, swarm: str, name: str) -> int:
        text = "SELECT bytes FROM desk_use WHERE swarm_name = $1 AND name = $2"
        return sum(row[0] for row in await self._fetch(_tuples, text, swarm, name))

    async def drop_letters(
        self, swarm: str, before: str, limit: int, after: LetterPlace | None = None
    ) -> DroppedLetters:
        most = min(limit, PARAMETERS)
        text = f"""
            SELECT created_at, seq, {_REMOVABLE} FROM (
                SELECT created_at, seq FROM desk_letters
                WHERE swarm_name = $1 AND created_at < $2 AND (created_at, seq) > ($3, $4)
                ORDER BY created_at, seq LIMIT $5
            ) AS l ORDER BY created_at, seq"""
        place = after or LetterPlace()
        seen = await self._fetch(_tuples, text, swarm, before, *place, most)
        old = [int(seq) for _, seq, removable in seen if removable]
        removed = await self._drop(swarm, old) if old else 0
        return DroppedLetters(removed, LetterPlace(*seen[-1][:2]) if len(seen) == most else None)

    async def _drop(self, swarm: str, seqs: Sequence[int]) -> int:
        """Remove those letters that may still go; who paid for them does no more."""
        which = f"l.swarm_name = $1 AND l.seq IN ({_places(2, seqs)})"
        gone = f"{which} AND NOT EXISTS (SELECT 1 FROM desk_receipts AS r WHERE r.letter = l.seq)"
        words = f"(SELECT seq FROM desk_letters AS l WHERE {gone})"
        texts = (
            f"""
            UPDATE desk_use SET bytes = bytes - (
                SELECT CAST(coalesce(sum(size), 0) AS BIGINT) FROM desk_letters AS l
                WHERE {which} AND l.payer = desk_use.name AND {_REMOVABLE})
            WHERE swarm_name = $1 AND name IN (SELECT payer FROM desk_letters AS l WHERE {which})
            """,
            f"""
            DELETE FROM desk_receipts WHERE letter IN (
                SELECT seq FROM desk_letters AS l WHERE {which} AND {_REMOVABLE})""",
            f"DELETE FROM desk_words WHERE rowid IN {words}",
            f"DELETE FROM desk_unindexed WHERE letter IN {words}",
            f"DELETE FROM desk_letters AS l WHERE {gone} RETURNING 1",
        )
        return len(await self._change_all(texts, swarm, *seqs))

    async def drop_pages(self, before: str, limit: int) -> int:
        text = """
            DELETE FROM desk_pages WHERE id IN (
                SELECT id FROM desk_pages WHERE created_at < $1 ORDER BY created_at LIMIT $2)
            RETURNING 1"""
        return len(await self._change(text, before, limit))


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
"""Which candidates fit; the lines of those beyond `LOOKED_BYTES` are not read."""

_OF_BOX: Final = f"""
SELECT letter, name, {_RECEIPT} FROM desk_receipts AS r
WHERE swarm_name = $1 AND name = $2 AND {_VISIBLE}"""
"""What a mailbox is a recipient of."""

_UNREAD: Final = f"""
SELECT letter, name, shown_at, 0 AS turn, '' AS acked_at, '' AS ack_note, answered_at, answer_id
FROM desk_receipts AS r
WHERE swarm_name = $1 AND name = $2 AND shown_at = '' AND {_VISIBLE}"""
"""What of it was not shown yet: an index of these has all columns."""

_WITH_RECEIPTS: Final = """
SELECT l.seq AS letter, CAST($2 AS TEXT) AS name, coalesce(shown_at, '') AS shown_at,
    coalesce(turn, 0) AS turn, coalesce(acked_at, '') AS acked_at,
    coalesce(ack_note, '') AS ack_note, coalesce(answered_at, '') AS answered_at,
    coalesce(answer_id, '') AS answer_id
FROM desk_letters AS l
LEFT JOIN desk_receipts AS r ON r.swarm_name = $1 AND r.name = $2 AND r.letter = l.seq"""
"""Letters with the receipts of a mailbox."""

_OF_THREAD: Final = f"{_WITH_RECEIPTS} WHERE l.swarm_name = $1"
"""What is in a thread."""

_MEMBER_NOW: Final = """EXISTS (
    SELECT 1 FROM desk_members WHERE swarm_name = $1 AND thread_id = {} AND name = $2)"""

_SINCE: Final = """{letter} > coalesce((
    SELECT seq FROM desk_letters WHERE swarm_name = $1 AND latest <= {since}
    ORDER BY latest DESC, seq DESC LIMIT 1), 0)
AND (SELECT created_at FROM desk_letters WHERE seq = {letter}) > {since}"""
"""Of letters after a time. The first part finds where such begin; without jumps of the clock, the
second one changes nothing."""


def _places(first: int, values: Sequence[object]) -> str:
    """Return the parameters for values, from the one with that number on."""
    return ", ".join(f"${number}" for number in range(first, first + len(values)))


def _tuples(rows: Iterable[Row]) -> list[tuple[Row, ...]]:
    return [tuple(row) for row in rows]


def _as_letter(row: Sequence[Row]) -> LetterRow:
    """Make a letter of `_LETTER`."""
    values = dict(zip(LetterRow._fields, row, strict=True))
    values["recipients"] = tuple(json.loads(values["recipients"]))
    values["urgent"], values["wants_ack"] = bool(values["urgent"]), bool(values["wants_ack"])
    return LetterRow(**values)


def _entries(rows: Iterable[Row]) -> list[tuple[LetterRow, ReceiptRow]]:
    """Make letters of `_LETTER`, a name and `_RECEIPT`."""
    found = []
    for row in rows:
        letter = _as_letter(row[:15])
        found.append((letter, ReceiptRow(letter.letter_id, *row[15:])))
    return found


def _looked_at(found: list[tuple[int, bool | None]]) -> list[tuple[int, bool | None]]:
    """Return candidates down to the first that nobody looked at."""
    end = next((at for at, (_, fits) in enumerate(found) if fits is None), len(found))
    return found[: end + 1]


def _in_order(letter: LetterRow, receipts: dict[str, ReceiptRow]) -> list[ReceiptRow]:
    """Return receipts in the order of the recipients."""
    return [receipts[name] for name in dict.fromkeys(letter.recipients) if name in receipts]
