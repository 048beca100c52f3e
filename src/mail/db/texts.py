"""Large texts are stored once per task; the records of a commit refer to them.

The body of a message appears in its delivery, its event, two histories and the answer: as it is,
escaped for XML, or as JSON within JSON. `Parcel` finds these copies in the texts of a commit and
puts ``@text{mode:hash}`` in their places; ``hash`` names a row of ``task_texts``, ``mode`` how the
text was written there. What looks like that in a record is written with the mark ``@text{=}``;
texts are stored as they are. A record that was changed in this way begins with a space, which JSON
allows, so small records cost the look at their length, and old ones stay as they are.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pydantic_core import to_json

from mail.core.pieces import PIECE, sliced
from mail.core.render import xml_text
from mail.db.driver import Dialect, Query, Verb

_QUICK: Final = 64 * 1024
"""Characters of a commit that are packed in about a millisecond."""

MARK: Final = "@text{"
LITERAL: Final = "@text{=}"
PLACE: Final = re.compile(r"@text\{(?:=|([pxja]):([0-9a-f]{32}))\}")


def _plain(text: str) -> str:
    return text


def _in_json(text: str) -> str:
    return to_json(text).decode()[1:-1]


def _in_ascii_json(text: str) -> str:
    return _in_json(text) if is_plain(text) else json.dumps(text)[1:-1]


def is_plain(text: str) -> bool:
    """Tell whether JSON writes a text in one way: in ASCII, without the one sign that differs."""
    return text.isascii() and "\x7f" not in text


_MODES: Final[Mapping[str, Callable[[str], str]]] = MappingProxyType(
    {"p": _plain, "x": xml_text, "j": _in_json, "a": _in_ascii_json}
)


def written(text: str, mode: str, *, raw: bool, pause: float = 0.0) -> str:
    """Return a text as it is written in a mode, in plain text or within JSON.

    That is done in slices, with a pause of so many seconds between those of a long text.
    """
    write = _MODES[mode]
    if len(text) <= PIECE:
        return write(text) if raw else _in_json(write(text))
    parts = []
    for part in sliced(text):
        parts.append(write(part) if raw else _in_json(write(part)))
        if pause and len(text) > _QUICK:
            time.sleep(pause)
    return "".join(parts)


def is_marked(text: str) -> bool:
    """Tell whether a text has one of our marks; fast, because few texts have even its first sign.

    It may be a large one, and there are many such looks.
    """
    return MARK[0] in text and MARK in text


def text_size(text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class Records(NamedTuple):
    """Which columns of a query hold records, by their places.

    Attributes:
        json: Records in JSON; those that were changed begin with a space.
        raw: Plain text, which was changed where the first of ``json`` was.
    """

    json: tuple[int, ...]
    raw: tuple[int, ...] = ()

    def hashes(self, rows: Iterable[Any]) -> list[str]:
        """Return which texts the rows refer to."""
        found: set[str] = set()
        for row in rows:
            for column in self._changed(row):
                found.update(place[2] for place in PLACE.finditer(row[column]) if place[2])
        return list(found)

    def whole(self, rows: Iterable[Any], texts: Mapping[str, str]) -> list[Any]:
        """Return the rows with the texts, by hash, put back.

        None of them when a text is missing: the task was deleted during the read.
        """
        restored = []
        for row in rows:
            columns = list(row)
            try:
                for column in self._changed(row):
                    raw = column in self.raw
                    columns[column] = _whole(row[column], texts, raw=raw)
            except KeyError:
                return []
            restored.append(columns)
        return restored

    def _changed(self, row: Any) -> list[int]:
        changed = [column for column in self.json if (row[column] or "")[:1] == " "]
        if changed and changed[0] == self.json[0]:
            changed += [column for column in self.raw if row[column] is not None]
        return changed


_THE_TASK: Final = """(
    SELECT key FROM tasks
    WHERE swarm_name = $1 AND caller_role = $2 AND caller_id = $3 AND task_id = $4)"""


def whole_rows(
    sql: Dialect, records: Records, query: Query, task: str = _THE_TASK
) -> Verb[list[Any]]:
    """Return the rows of a query with their large texts, which are kept apart.

    Args:
        sql: The database's dialect.
        records: Which columns of the rows are records.
        query: Its first four parameters name the task.
        task: The key of the task, if these are not its owner and its id.
    """
    rows = yield query
    hashes = records.hashes(rows)
    if not hashes:
        return records.whole(rows, {})
    text = f"SELECT hash, text FROM task_texts WHERE task = {task} AND hash {sql.among('$5')}"
    found = yield Query(text, (*query.values[:4], sql.list(hashes)))
    return records.whole(rows, dict(map(tuple, found)))


def _whole(record: str, texts: Mapping[str, str], *, raw: bool) -> str:
    text = record if raw else record[1:]
    return PLACE.sub(partial(_put_back, texts, raw), text) if is_marked(text) else text


def _put_back(texts: Mapping[str, str], raw: bool, found: re.Match[str]) -> str:
    if found[1] is None:
        return MARK
    return written(texts[found[2]], found[1], raw=raw)
