"""Finds the large texts of a commit and refers to them: see `mail.db.texts`."""

import asyncio
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic_core import from_json

from mail.db.calls import CallRow
from mail.db.post import Post, TurnCommit
from mail.db.records import Delivery, EventRow, HistoryRow, JournalRow, OutboxRow
from mail.db.texts import LITERAL, MARK, PLACE, is_marked, is_plain, text_size, written

LARGE: Final = 4096
"""Characters of a record that is searched for texts."""
SHORTEST: Final = 2048
"""Characters of a text that is worth a row of its own."""
_QUICK: Final = 64 * 1024
"""Characters of a commit that are packed in about a millisecond."""
_FOR_OTHERS: Final = 500e-6
"""Seconds between slices of a long text that is packed, so that commits of others go on."""
_MOST_STRINGS: Final = 20_000
_MOST_TEXTS: Final = 32
"""Texts of a commit; each is looked for in all of its large records."""
_MOST_PARTS: Final = 8
_LITTLE: Final = 1 / 16
"""How much of JSON within a record may be other than its long strings, if these are to be texts."""
_MOST_TRIES: Final = 64
_HEAD: Final = 64
_ROW_BYTES: Final = 100
_REFERENCE: Final = re.compile(r"@text\{[pxja]:[0-9a-f]{32}\}")
_PLACE_LENGTH: Final = len("@text{p:}") + 32


def _with_literals(text: str) -> str:
    return text.replace(MARK, LITERAL) if is_marked(text) else text


def _in_utf8(text: str) -> bytes | None:
    """Return a text in UTF-8; None if it has unpaired surrogates, which no store takes."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None


def commit_size(post: Post) -> int:
    """Return about how many bytes the records of a commit take."""
    return _records_size(_records(post))


def _records_size(records: Sequence[str]) -> int:
    # All at once, which takes less than a look at each.
    return text_size("".join(records)) + _ROW_BYTES * len(records)


class _Text:
    """A text that records may repeat, and how it is written in them; ``modes`` are all ways."""

    def __init__(self, text: str, utf8: bytes) -> None:
        self.text = text
        self.hash = hashlib.sha256(utf8).hexdigest()[:32]
        self.modes = "pxj" if is_plain(text) else "pxja"
        self._forms: dict[tuple[str, bool], str] = {}

    def form(self, mode: str, *, raw: bool) -> str:
        """Return how it is written in a record, where our marks are literal ones."""
        key = mode, raw
        if key not in self._forms:
            text = written(self.text, mode, raw=raw, pause=_FOR_OTHERS)
            self._forms[key] = _with_literals(text)
        return self._forms[key]


@dataclass(slots=True)
class _Packer:
    """Replaces texts in the records of one commit; ``used`` are those that it refers to."""

    known: dict[str, _Text] = field(default_factory=dict)
    used: dict[str, str] = field(default_factory=dict)

    def know(self, text: str) -> _Text | None:
        """Look for a text in the records to come; return it, if it is worth that."""
        utf8 = _in_utf8(text) if len(text) > SHORTEST else None
        if utf8 is None:
            return None
        known = _Text(text, utf8)
        if known.hash in self.known or len(self.known) < _MOST_TEXTS:
            return self.known.setdefault(known.hash, known)
        return None

    def json(self, record: str) -> str:
        """Return a JSON record as it is to be stored."""
        if len(record) <= LARGE and record[:1] != " ":
            return record
        return self.changed(record)

    def changed(self, record: str, *, raw: bool = False) -> str:
        """Return a record with references, whatever its length."""
        text = _with_literals(record)
        for known in list(self.known.values()):
            text = self._refer(text, known, raw=raw)
        if len(text) > LARGE:
            for part in _parts(text) if raw else _long_strings(text):
                found = self.know(part)
                if found is not None:
                    text = self._refer(text, found, raw=raw)
                if len(text) <= LARGE:
                    break
        return text if raw else " " + text

    def _refer(self, record: str, known: _Text, *, raw: bool) -> str:
        least = len(known.text) // 2  # XML leaves out what it cannot hold
        for mode in known.modes:
            if len(record) < least:
                break  # most records hold a text only as it is
            form = known.form(mode, raw=raw)
            if len(form) > SHORTEST:
                text = _replaced(record, form, f"{MARK}{mode}:{known.hash}}}", raw=raw)
                if text is not record:
                    self.used[known.hash] = known.text
                    record = text
        return record


def _replaced(record: str, form: str, place: str, *, raw: bool) -> str:
    """Return a record with every occurrence of a form replaced; the same object without any."""
    head, start, tries = form[:_HEAD], 0, 0
    parts: list[str] = []
    at = record.find(head)
    while at >= 0 and tries < _MOST_TRIES:
        end = at + len(form)
        fits = record.startswith(form, at) and not _cuts_place(record, at, end)
        if fits and (raw or _between_signs(record, at)):
            parts += (record[start:at], place)
            start = end
            at = record.find(head, start)
        else:
            tries += 1
            at = record.find(head, at + 1)
    if not parts:
        return record
    return "".join((*parts, record[start:]))


def _cuts_place(record: str, at: int, end: int) -> bool:
    """Tell whether a part of a record begins or ends inside one of the places."""
    before = record.rfind(MARK, max(0, at - _PLACE_LENGTH), at + len(MARK) - 1)
    place = PLACE.match(record, before) if before >= 0 else None
    if place is not None and place.end() > at:
        return True
    return record.find(MARK, max(at, end - len(MARK) + 1), end + len(MARK) - 1) >= 0


def _between_signs(record: str, at: int) -> bool:
    """Tell whether a place in JSON is not inside an escape sequence."""
    last = record.rfind("\\", max(0, at - 6), at)
    if last < 0:
        return True
    first = last
    while first and record[first - 1] == "\\":
        first -= 1
    if (last - first) % 2:  # pairs only: the last one is escaped itself
        return True
    return last + (6 if record[last + 1] == "u" else 2) <= at


def _parts(text: str) -> list[str]:
    """Return what stands between the references in a text, without literal marks."""
    if not is_marked(text):
        return [text]
    return [part.replace(LITERAL, MARK) for part in _REFERENCE.split(text)]


def _long_strings(record: str) -> list[str]:
    """Return the long strings in a JSON record; for JSON within it, those it is made of."""
    return _innermost(_outer_strings(record))


def _innermost(strings: Iterable[str]) -> list[str]:
    """Return long strings, and for JSON among them those that it is made of."""
    found: list[str] = []
    for text in strings:
        found += _inner_strings(text) or filter(None, _parts(text))
    return found


def _inner_strings(text: str) -> list[str]:
    """Return the long strings of JSON that holds little else.

    Other JSON is a text as a whole: what is left of it would be in every record.
    """
    strings = _outer_strings(text) if text[0] in "{[" else []
    if len(strings) > _MOST_PARTS:
        return []
    if _rest(text, strings) > _LITTLE * len(text):
        return []
    return _innermost(strings)


def _rest(text: str, strings: Sequence[str]) -> int:
    """Return how many characters of JSON are not in its long strings, or that there are few."""
    least = sum(map(len, strings))  # no string is shorter in JSON
    if len(text) - least <= _LITTLE * len(text):
        return 0
    mode = "a" if text.isascii() else "j"
    return len(text) - sum(len(written(inner, mode, raw=True)) for inner in strings)


def _outer_strings(record: str) -> list[str]:
    quotes = record.count('"')
    if quotes > _MOST_STRINGS and quotes - record.count('\\"') > _MOST_STRINGS:
        return []
    try:
        value = from_json(record)
    except ValueError:
        return []
    return [text for text in _strings(value) if len(text) > SHORTEST]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


class Parcel:
    """A commit as it is to be stored; what that takes is found out once, at the first look.

    Attributes:
        takes_long: To open it takes milliseconds.
        post: The commit with its records changed.
        texts: The texts that it refers to, by hash.
        bytes: About what its records take, without the texts.
        event_sizes: The bytes of each event with the texts put back.
        call_sizes: Likewise the `mail.db.calls.CallRow.size` of each call.
    """

    __slots__ = (
        "_characters",
        "_made",
        "_post",
        "_records",
        "bytes",
        "call_sizes",
        "event_sizes",
        "post",
        "takes_long",
        "texts",
    )

    post: Post
    texts: dict[str, str]
    bytes: int
    event_sizes: list[int]
    call_sizes: list[int]

    def __init__(self, post: Post) -> None:
        self._post = post
        self._made = False
        self._records = _records(post)
        self._characters = sum(map(len, self._records))
        self.takes_long = self._characters > _QUICK

    def opened(self) -> "Parcel":
        """Return the parcel with its attributes. Long texts take time: call it in a thread."""
        if not self._made:
            post, records = self._post, self._records
            self.event_sizes = [text_size(row.extra + row.description) for row in post.events]
            self.call_sizes = [row.size for row in post.calls]
            if self._is_to_be_packed():
                self.post, self.texts = _packed(post)
                self.bytes = commit_size(self.post)
            else:
                self.post, self.texts = post, {}
                self.bytes = _records_size(records)
            self._made = True
        return self

    def _is_to_be_packed(self) -> bool:
        """Tell whether a record is large, or begins as if it had been changed."""
        records = self._records
        if self._characters > LARGE and max(map(len, records)) > LARGE:
            return True
        return " " in [text[:1] for text in records]


async def packed(post: Post, thread: Executor) -> Parcel:
    """Return a parcel; a large one is opened in a thread before it is the turn of its commit.

    Other commits go on meanwhile. What is wrong with it shows when it is opened again.
    """
    parcel = Parcel(post)
    if parcel.takes_long:
        opening = asyncio.get_running_loop().run_in_executor(thread, parcel.opened)
        await asyncio.wait([opening])
        if not opening.cancelled():
            opening.exception()
    return parcel


def _records(post: Post) -> list[str]:
    records: list[str] = []
    for mail in post.deliveries:
        records.append(mail.payload)
    for event in post.events:
        records += (event.extra, event.description)
    for entry in post.histories:
        records += (entry.entries, entry.entries)  # it is in the snapshot, too
    for call in post.calls:
        records += (call.call, call.shown, call.answer or "")
        records += (call.description, call.decision or "")
    if post.response is not None:
        records.append(post.response)
    if post.outbox:
        records += [row.wrapper for row in post.outbox]
    if isinstance(post, TurnCommit) and post.journal:
        records += [row.payload for row in post.journal]
    return records


def _packed(post: Post) -> tuple[Post, dict[str, str]]:
    """Return a commit with its large records changed, and the texts.

    What holds a text as it is comes before what may hold it within JSON or XML.
    """
    packer = _Packer()
    for text in post.texts:
        packer.know(text)
    changes: dict[str, Any] = {}
    if post.response is not None:
        changes["response"] = packer.json(post.response)
    changes["deliveries"] = tuple(_packed_mail(packer, row) for row in post.deliveries)
    changes["events"] = tuple(_packed_event(packer, row) for row in post.events)
    if isinstance(post, TurnCommit):
        changes["journal"] = tuple(_packed_fact(packer, row) for row in post.journal)
    changes["calls"] = tuple(_packed_call(packer, row) for row in post.calls)
    changes["histories"] = tuple(
        HistoryRow(row.agent, packer.json(row.entries)) for row in post.histories
    )
    changes["outbox"] = tuple(_packed_outbox(packer, row) for row in post.outbox)
    return replace(post, **changes), packer.used


def _packed_mail(packer: _Packer, row: Delivery) -> Delivery:
    return row._replace(payload=packer.json(row.payload))


def _packed_outbox(packer: _Packer, row: OutboxRow) -> OutboxRow:
    return row._replace(wrapper=packer.json(row.wrapper))


def _packed_fact(packer: _Packer, row: JournalRow) -> JournalRow:
    return row._replace(payload=packer.json(row.payload))


def _packed_event(packer: _Packer, row: EventRow) -> EventRow:
    extra = packer.json(row.extra)
    if extra is row.extra and len(row.description) <= LARGE:
        return row
    if extra is row.extra:
        extra = packer.changed(extra)
    return row._replace(extra=extra, description=packer.changed(row.description, raw=True))


def _packed_call(packer: _Packer, row: CallRow) -> CallRow:
    call, answer = packer.json(row.call), row.answer
    if call is row.call and answer is not None and len(answer) > LARGE:
        call = packer.changed(call)
    if call is not row.call and answer is not None:
        answer = packer.changed(answer, raw=True)
    return row._replace(call=call, shown=packer.json(row.shown), answer=answer)
