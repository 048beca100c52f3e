"""A whole database as a file of JSON lines, and a database made of such a file.

The first line tells of the database. A line for each row follows, ``{"table": …, "row": …}``, after
the rows that it refers to. The last line has, by table, the number of ``rows`` and the sum of their
SHA-256 modulo 2**256: databases sort differently. Values are written alike whatever the kind of
database: times and JSON as text, truth as 0 or 1.

An import notes in ``schema_version``, with each batch of rows, how many there are. Until all have
been read back and are those of the file, no store over the database can be opened.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias
from uuid import uuid4

from pydantic_core import from_json, to_json

from mail.db.driver import Batch, Change, Query, Verb, Verbs, read, write
from mail.db.postgres.dialect import jsonb_text, moment, moment_text
from mail.db.rows import insert
from mail.errors import StoreError
from mail.version import get_version

Record: TypeAlias = dict[str, Any]

REGISTRY: Final = "swarm_registry"
"""The table that only PostgreSQL has."""

TABLES: Final = (
    *("tasks", "messages", "journal", "task_events", "task_responses", "task_texts"),
    *("history_entries", "agent_histories", "calls", "questions", "outbox", "inbox", "webhooks"),
    *("desk_threads", "desk_members", "desk_letters", "desk_receipts", "desk_use", "desk_pages"),
    *("desk_files", "desk_asks", "desk_words", "desk_unindexed", "memories", "memory_versions"),
    *("memory_feedback", "tokens", "idempotency", "sweeps", "approval_counter", "database_id"),
    REGISTRY,
)
"""What is moved, in an order that references allow. Other tables tell of processes at work."""

_SEEDED: Final = ("approval_counter", "database_id", "sweeps")
"""Tables that have rows in a database without data."""
_DOCUMENTED: Final = ("agent_histories", "tasks", "task_events", "task_responses")
_OWN: Final = {"tasks.node", "task_texts.id", *(f"{table}.id" for table in _DOCUMENTED)}
"""Columns that tell of a process at work, or are numbers to which nothing refers."""
_JSON: Final = ("history", "remote_swarms", "task_contributors")
_FORMAT: Final = 1
_PAGE: Final = 100
"""So many rows are read or written at once."""

_SCHEMA: Final = "SELECT name FROM schema_version ORDER BY version DESC LIMIT 1"
_SWARMS: Final = "SELECT DISTINCT swarm_name FROM tasks WHERE swarm_name <> '' ORDER BY swarm_name"
_BEGIN: Final = """
INSERT INTO schema_version (version, name, applied_at) VALUES (-1, $1, CURRENT_TIMESTAMP)
"""
NOTED: Final = "SELECT name FROM schema_version WHERE version = -1"
"""The note of an import that has not ended."""
PARTIAL: Final = (
    "the database holds part of an import; run 'mail db import' with the same file again, or use "
    "another database"
)
_NOTE: Final = "UPDATE schema_version SET name = $2 WHERE version = -1 AND name = $1"
_END: Final = "DELETE FROM schema_version WHERE version = -1"


class _Columns(NamedTuple):
    """A table's columns to move with their types, its primary key, and its numbered column."""

    types: dict[str, str]
    key: list[str]
    numbered: str = ""
    last: int = 0


class MoveVerbs(Verbs):
    """Verbs that move a whole database."""

    @read
    def unfinished_import(self) -> Verb[str]:
        """Return the note of an import that has not ended, or no text.

        It is the id of the file, and the number of its rows that are there.
        """
        rows = yield Query(NOTED)
        return str(rows[0][0]) if rows else ""

    async def write_rows(self, write: Callable[[Record], object]) -> Record:
        """Hand the lines of a file to ``write``, all of one moment; return the last one's."""
        return await self.driver.snapshot(partial(self._write_rows, write))

    def _write_rows(self, write: Callable[[Record], object]) -> Verb[Record]:
        tables, end = (yield from self._tables()), Record()
        header = {
            "format": _FORMAT,
            "id": uuid4().hex,
            "version": get_version(),
            "created_at": datetime.now(UTC).isoformat(),
            "schema": (yield from self._schema()),
            "database_id": (yield Query("SELECT id FROM database_id"))[0][0],
            "swarms": [swarm for (swarm,) in (yield Query(_SWARMS))],
            "numbers": {table: columns.last for table, columns in tables.items() if columns.last},
        }
        write(header)
        for table, columns in tables.items():
            after: tuple[Any, ...] | None = ()
            while after is not None:
                page = yield from self._page(table, columns, after)
                for row in page:
                    values = dict(zip(columns.types, row, strict=False))
                    portable = self.sql.portable(table, values)
                    write({"table": table, "row": portable})
                    _count(end, table, portable)
                full = columns.key and len(page) == _PAGE
                after = tuple(page[-1])[len(columns.types) :] if full else None
        write({"end": end})
        return end

    def _page(self, table: str, columns: _Columns, after: tuple[Any, ...]) -> Verb[list[Any]]:
        """Return the next rows of a table, each with its key; a table without one has one row."""
        key, places = ", ".join(columns.key), ", ".join(f"${n}" for n, _ in enumerate(after, 1))
        text = f"SELECT {', '.join([*columns.types, *columns.key])} FROM {table}"
        text += f" WHERE ({key}) > ({places})" if after else ""
        text += f" ORDER BY {key} LIMIT {_PAGE}" if key else ""
        rows: list[Any] = yield Query(text, after)
        return rows

    def _schema(self) -> Verb[str]:
        """Return the name of the newest migration; its number depends on the kind of database."""
        return str((yield Query(_SCHEMA))[0][0]).partition("_")[2]

    def _tables(self) -> Verb[dict[str, _Columns]]:
        found: dict[str, _Columns] = {}
        for table, name, kind, is_key, last in (
            yield Query(self.sql.catalogue, (self.sql.list(TABLES),))
        ):
            columns = found.setdefault(table, _Columns({}, []))
            if f"{table}.{name}" not in _OWN:
                columns.types[name] = kind
            if is_key:
                columns.key.append(name)
            if last is not None:
                found[table] = columns._replace(numbered=name, last=last)
        return {table: found[table] for table in TABLES if table in found}

    @write
    def begin_import(self, note: str, schema: str) -> Verb[None]:
        """Take a database for an import.

        Raises:
            StoreError: it has data, or another schema.
        """
        if (yield from self._schema()) != schema:
            raise StoreError("the file is of another version of MAIL: import it with that version")
        for table in (yield from self._tables()):
            if table in _SEEDED:
                yield Change(f"DELETE FROM {table}")
            elif (yield Query(f"SELECT 1 FROM {table} LIMIT 1")):
                raise StoreError(f"the database is not empty: the table {table} has rows")
        yield Change(_BEGIN, (note,))

    @write
    def add_rows(self, note: str, then: str, lines: Iterable[Record]) -> Verb[None]:
        """Add the rows in lines of a file, of tables that there are, and change the note.

        Raises:
            StoreError: the note is another one.
        """
        if not (yield Change(_NOTE, (note, then))):
            raise StoreError("another process imports into the database; wait for its end")
        tables = yield from self._tables()
        for table, group in groupby(lines, itemgetter("table")):
            if table in tables:
                types = tables[table].types
                stored = [self.sql.stored(table, types, line["row"]) for line in group]
                text = insert(table, *types).replace(" VALUES", f" {self.sql.numbered} VALUES")
                yield Batch(text, [[row[name] for name in types] for row in stored])

    @write
    def end_import(self, numbers: Mapping[str, int]) -> Verb[None]:
        """Open the database to stores. No table gives a number again, up to those named here.

        Running tasks are taken up like those of a process that is gone.
        """
        yield Change("UPDATE tasks SET node = 'exported' WHERE is_running")
        for table, columns in (yield from self._tables()).items():
            if columns.numbered or table in numbers:
                last = numbers.get(table, 0)
                yield from self.sql.continue_numbers(table, columns.numbered, last)
        yield Change(_END)


def _count(totals: Record, table: str, row: Record) -> None:
    values = to_json([_comparable(table, name, row[name]) for name in sorted(row)])
    total = totals.setdefault(table, {"rows": 0, "sha256": "0"})
    total["rows"] += 1
    number = int(total["sha256"], 16) + int.from_bytes(sha256(values).digest(), "big")
    total["sha256"] = f"{number % 2**256:064x}"


def _comparable(table: str, column: str, value: Any) -> Any:
    """Return a value without what PostgreSQL does not give back of a documented column."""
    if table not in _DOCUMENTED or value is None:
        return value
    if column in ("created_at", "updated_at"):
        found, _ = moment(value)
        return value if found is None else moment_text(found)
    if column in _JSON:
        text = jsonb_text(value)
        parsed = json.loads(text, strict=False, parse_int=_number, parse_float=_number)
        return json.dumps(parsed, sort_keys=True)
    return value


def _number(text: str) -> float:
    return float(text) + 0.0  # JSONB has no -0


def _check_equal(found: Record, exported: Record, what: str) -> None:
    for table in TABLES:
        if found.get(table) != exported.get(table):
            rows, all_rows = (each.get(table, {}).get("rows", 0) for each in (found, exported))
            raise StoreError(f"{what} (table {table}: {rows} rows, exported were {all_rows})")


def whole_file(path: Path) -> tuple[Record, Record]:
    """Read a file to its end; return its first line, and what the last one has by table.

    Raises:
        StoreError: it is no export, it ends too soon, or something in it was changed.
        OSError: it cannot be read.
    """
    header, line, found = Record(), Record(), Record()
    with path.open("rb") as file, suppress(ValueError, TypeError, KeyError, AttributeError):
        header |= from_json(file.readline())
        for line in map(from_json, file):
            if "row" in line:
                _count(found, line["table"], line["row"])
    if header.get("format") != _FORMAT:
        raise StoreError(f"{path} was not written by 'mail db export' of this version of MAIL")
    if "end" not in line:
        raise StoreError(f"{path} is damaged or cut off; copy it again, or export again")
    _check_equal(found, line["end"], f"{path} is not as it was written; copy it again")
    return header, line["end"]


async def export_file(store: MoveVerbs, file: BinaryIO) -> int:
    """Write a database to a file, also while servers are at work on it; return its rows."""
    end = await store.write_rows(lambda line: file.write(to_json(line) + b"\n"))
    return sum(total["rows"] for total in end.values())


async def import_file(store: MoveVerbs, path: Path, header: Record, end: Record) -> int:
    """Make a database of a `whole_file`, or go on where that was cut off; return its rows.

    Args:
        store: A store whose driver is open, and which nobody else uses.
        path, header, end: The file.

    Raises:
        StoreError: the database has data, or part of another file; it refuses a row; or it does not
            have the rows of the file afterwards.
    """
    note = await store.unfinished_import()
    if not note:
        note = f"{header['id']} 0"
        await store.begin_import(note, header["schema"])
    begun, _, number = note.partition(" ")
    if begun != header["id"]:
        raise StoreError(
            "the database holds part of another file; import that one, or use another database"
        )
    done = int(number)
    with path.open("rb") as file:
        lines = islice(file, 1 + done, None)
        while part := [line for line in map(from_json, islice(lines, _PAGE)) if "row" in line]:
            done += len(part)
            then = f"{begun} {done}"
            await store.add_rows(note, then, part)
            note = then
    found = await store.write_rows(lambda line: None)
    if not store.driver.shared:
        end = {table: total for table, total in end.items() if table != REGISTRY}
    _check_equal(found, end, "the database differs from the file")
    await store.end_import(header["numbers"])
    return sum(total["rows"] for total in found.values())
