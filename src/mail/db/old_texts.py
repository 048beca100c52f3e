"""Records of earlier versions, with marks in place of long texts: a migration changes them.

A record with marks began with a space. A mark was ``@text{mode:hash}``; ``mode`` told how the text
was written there: ``p`` as it is, ``x`` in XML, ``j`` in JSON or ``a`` in JSON that is ASCII, and
within a JSON record all of that in JSON once more. What only looked like a mark was written with
``@text{=}`` in place of ``@text{``. Marks become hashes, and what they told goes to the column
``texts``: see `mail.db.texts`. No text is read, and no other row is touched.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from pydantic_core import to_json

from mail.db.driver import Batch, Query, Verb

_MARK: Final = re.compile(r"@text\{(?:=|([pxja]):([0-9a-f]{32}))\}")
_BATCH: Final = 100

_Row: TypeAlias = tuple[str | None, ...]


class _Table(NamedTuple):
    """A table with records.

    Attributes:
        name: The table's.
        key: The columns of its key, and for each a value below all.
        json: Its JSON records.
        plain: Its records that are text; they had marks only if the first JSON record had any.
    """

    name: str
    key: Mapping[str, object]
    json: tuple[str, ...]
    plain: tuple[str, ...] = ()


def change_marks(response: str) -> Verb[None]:
    """Put hashes in place of all marks.

    Args:
        response: The column with the JSON text of a final message.
    """
    for table in (
        _Table("messages", {"seq": 0}, ("payload",)),
        _Table("journal", {"id": 0}, ("payload",)),
        _Table("task_events", {"task": 0, "seq": 0}, ("event_data",), ("description",)),
        _Table("task_responses", {"task": 0}, (response,)),
        _Table("history_entries", {"id": 0}, ("entries",)),
        _Table("calls", {"id": 0}, ("call", "shown"), ("answer",)),
        _Table("outbox", {"id": 0}, ("wrapper",)),
    ):
        yield from _rewrite(table, " %", partial(_changed, table), ", texts")
    # The engine does not read these: nothing tells where their hashes stand.
    histories = _Table("agent_histories", {"task": 0, "agent_name": ""}, ("history",))
    yield from _rewrite(histories, "%@text{%", _changed_document)
    if response != "response":
        responses = _Table("task_responses", {"task": 0}, ("response",))
        yield from _rewrite(responses, "%@text{%", _changed_document)


def _rewrite(
    table: _Table, pattern: str, change: Callable[[_Row], _Row], more: str = ""
) -> Verb[None]:
    """Change the rows of a table with a JSON record that is like a pattern, some at a time."""
    columns, key = (*table.json, *table.plain), ", ".join(table.key)
    texts = ", ".join(f"CAST({column} AS TEXT)" for column in columns)
    after = ", ".join(f"${number}" for number in range(1, len(table.key) + 1))
    found = " OR ".join(f"CAST({column} AS TEXT) LIKE '{pattern}'" for column in table.json)
    select = f"""
        SELECT {key}, {texts} FROM {table.name}
        WHERE ({key}) > ({after}) AND ({found}) ORDER BY {key} LIMIT {_BATCH}"""
    changed = f"{', '.join(columns)}{more}".split(", ")
    values = ", ".join(f"{column} = ${number}" for number, column in enumerate(changed, 1))
    which = enumerate(table.key, len(changed) + 1)
    same = " AND ".join(f"{column} = ${number}" for number, column in which)
    update = f"UPDATE {table.name} SET {values} WHERE {same}"
    last = tuple(table.key.values())
    width = len(last)
    while rows := [tuple(row) for row in (yield Query(select, last))]:
        last = rows[-1][:width]
        yield Batch(update, [(*change(row[width:]), *row[:width]) for row in rows])


def _changed(table: _Table, row: _Row) -> _Row:
    """Return the columns of a row with hashes, and its ``texts``."""
    kept: list[str | None] = []
    places: dict[str, list[tuple[int, str]]] = {}
    marked = (row[0] or "")[:1] == " "
    for name, text in zip((*table.json, *table.plain), row, strict=True):
        is_json = name in table.json
        if text is None or not (text[:1] == " " if is_json else marked):
            kept.append(text)
            continue
        record, found = _without_marks(text[1:] if is_json else text, "j" if is_json else "")
        kept.append(record)
        if found:
            places["response" if name == "response_text" else name] = found
    return *kept, to_json(places).decode() if places else None


def _changed_document(row: _Row) -> _Row:
    return tuple(_without_marks(text or "", "")[0] for text in row)


def _without_marks(text: str, around: str) -> tuple[str, list[tuple[int, str]]]:
    """Return a record with hashes, and where they stand; all texts are also written ``around``."""
    parts: list[str] = []
    places: list[tuple[int, str]] = []
    start = length = 0
    for mark in _MARK.finditer(text):
        way, found = mark.groups()
        parts += (text[start : mark.start()], found or "@text{")
        length += mark.start() - start
        if found:
            places.append((length, way.replace("p", "") + around))
        length += len(parts[-1])
        start = mark.end()
    return "".join((*parts, text[start:])), places
