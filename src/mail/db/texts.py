"""A long text stands once per task, in ``task_texts``; records have its hash in its place.

The body of a message appears in its delivery, its event, the histories of its readers and the
answer. `Lifter` takes it out of each of these records: the record keeps the text's hash, and the
column ``texts`` of the row tells where, for example ``{"event_data":[[57,"j"]]}``: how many
characters of the column stand before the hash, and how the text is written there. `whole_rows` puts
the texts back, so what is read is exactly what was committed. Most rows have no long text, and NULL
in ``texts``.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from xml.sax.saxutils import unescape

from pydantic_core import from_json, to_json

from mail.core.render import xml_text
from mail.db.driver import Dialect, Query, Verb

LARGE: Final = 4096
"""Characters of a column whose long texts are lifted."""
SHORTEST: Final = 2048
"""Characters of a text that is worth a row of its own."""
HASH_LENGTH: Final = 32

_PLAIN: Final = frozenset({"answer", "description"})
"""Columns that are text; all others are JSON."""
_MAIL: Final = "\n<incoming_message>\n"
_OPEN, _CLOSE = "<body>", "</body>"
_HEAD: Final = 64
_MOST_BESIDE: Final = 1 / 8
"""The part of a string that may be other than long texts, if these are kept in its place."""


_WAYS: Final[Mapping[str, Callable[[str], str]]] = MappingProxyType(
    {
        "x": xml_text,
        "j": lambda text: to_json(text).decode()[1:-1],
        "a": lambda text: json.dumps(text)[1:-1],
    }
)
"""The form of a text in a record: escaped for XML, for JSON, or for JSON that is ASCII."""


def text_size(text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class _Part(NamedTuple):
    """A text within a string: where it stands, as what, the text, and how it is written there."""

    at: int
    form: str
    text: str
    ways: str


class Lifter:
    """Takes the long texts out of the records of one commit; ``texts`` has them by their hashes."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._hashes: dict[str, str] = {}
        self._forms: dict[tuple[str, str], str] = {}

    def rows(self, rows: tuple[Any, ...], **columns: str) -> tuple[Any, ...]:
        """Return rows without the long texts in some columns, whose fields are given.

        Their ``texts`` tell where these stand.
        """
        short = []
        for row in rows:
            values = {column: getattr(row, name) for column, name in columns.items()}
            kept, texts = self.columns(**values)
            if texts is not None:
                row = row._replace(**dict(zip(columns.values(), kept, strict=True)), texts=texts)
            short.append(row)
        return tuple(short)

    def columns(self, **columns: str | None) -> tuple[list[str | None], str | None]:
        """Return the columns of a row without their long texts, and its ``texts``."""
        kept: list[str | None] = []
        places: dict[str, list[tuple[int, str]]] = {}
        for name, record in columns.items():
            if record is None or len(record) <= LARGE:
                kept.append(record)
                continue
            parts = self._parts(record) if name in _PLAIN else self._parts_within(record)
            short, start = "", 0
            for at, form, text, ways in parts:
                short += record[start:at]
                places.setdefault(name, []).append((len(short), ways))
                short += self._hash(text)
                start = at + len(form)
            kept.append(short + record[start:])
        return kept, to_json(places).decode() if places else None

    def _parts(self, string: str) -> list[_Part]:
        """Return the long texts of which a string is made: those within it, or itself."""
        found = self._parts_within(string)
        beside = len(string) - sum(len(part.form) for part in found)
        return found if beside <= _MOST_BESIDE * len(string) else [_Part(0, string, string, "")]

    def _parts_within(self, string: str) -> list[_Part]:
        """Return the long texts within JSON or incoming mail, in order."""
        found: list[_Part] = []
        start = 0
        inner, ways = _strings_within(string)
        for part in [part for each in inner for part in self._parts(each)]:
            for way in ways:
                form = self._forms.get((part.form, way))
                if form is None:
                    form = self._forms[part.form, way] = _WAYS[way](part.form)
                at = string.find(form[:_HEAD], start)  # to look for a long text takes far longer
                if at >= 0 and not string.startswith(form, at):
                    at = string.find(form, at)
                if at >= 0:
                    found.append(_Part(at, form, part.text, part.ways + way))
                    start = at + len(form)
                    break
        return found

    def _hash(self, text: str) -> str:
        found = self._hashes.get(text)
        if found is None:
            utf8 = text.encode("utf-8", "surrogatepass")  # the database will refuse it
            found = hashlib.sha256(utf8).hexdigest()[:HASH_LENGTH]
            self._hashes[text] = found
            self.texts[found] = text
        return found


def _strings_within(string: str) -> tuple[Iterable[str], str]:
    """Return the long strings in JSON, or the body of incoming mail, and how they may be written.

    The JSON may have other words around it.
    """
    if string.startswith(_MAIL):
        body = string[string.find(_OPEN) + len(_OPEN) : string.rfind(_CLOSE)]
        texts = [unescape(body, {"&#13;": "\r"})] if len(body) > SHORTEST else []
        return texts, "x"
    starts = [at for at in (string.find("{"), string.find("[")) if at >= 0]
    end = max(string.rfind("}"), string.rfind("]")) + 1
    try:
        value = from_json(string[min(starts, default=end) : end])
    except ValueError:
        return (), ""
    return _long_strings(value), "ja"


def _long_strings(value: Any) -> Iterator[str]:
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            if len(item) > SHORTEST:
                yield item
        elif isinstance(item, dict):
            left.extend(reversed(item.values()))
        elif isinstance(item, list):
            left.extend(reversed(item))


def whole_rows(sql: Dialect, query: Query, columns: Mapping[str, int]) -> Verb[list[Any]]:
    """Return the rows of a query with their long texts put back, without its last two columns.

    There are no rows of a task that lacks a text: it was deleted during the read.

    Args:
        sql: The database's dialect.
        query: Its last two columns are the key of the row's task and the row's ``texts``.
        columns: The places of the columns that may have long texts, by their names in ``texts``.
    """
    rows = yield query
    changed = [row for row in rows if row[-1] is not None]
    if not changed:
        return [row[:-2] for row in rows]
    hashes = {found for row in changed for found in _hashes(row, columns)}
    text = f"""
        SELECT hash, text FROM task_texts
        WHERE task {sql.among("$1", "bigint")} AND hash {sql.among("$2")}"""
    tasks = {row[-2] for row in changed}
    found = yield Query(text, (sql.list([*tasks]), sql.list([*hashes])))
    texts = dict(map(tuple, found))
    lost = {row[-2] for row in changed if not texts.keys() >= {*_hashes(row, columns)}}
    whole = []
    for row in rows:
        if row[-2] in lost:
            continue
        restored = list(row[:-2])
        for column, places in _places(row, columns):
            record, start = row[column], 0
            parts: list[str] = []
            for at, ways in places:
                end = at + HASH_LENGTH
                text = texts[record[at:end]]
                for way in ways:
                    text = _WAYS[way](text)
                parts += (record[start:at], text)
                start = end
            restored[column] = "".join((*parts, record[start:]))
        whole.append(restored)
    return whole


def _hashes(row: Any, columns: Mapping[str, int]) -> Iterator[str]:
    for column, places in _places(row, columns):
        for at, _ in places:
            yield row[column][at : at + HASH_LENGTH]


def _places(row: Any, columns: Mapping[str, int]) -> Iterable[tuple[int, list[tuple[int, str]]]]:
    places = {} if row[-1] is None else from_json(row[-1])
    return [
        (columns[name], found)
        for name, found in places.items()
        if name in columns and row[columns[name]] is not None  # as of a result that is not listed
    ]
