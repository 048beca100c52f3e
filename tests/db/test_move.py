"""A database becomes a file, and the file a database of either kind, with everything in it."""

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from mail.db.memory import MemoryStore
from mail.db.migrate import migrate, packaged_migrations
from mail.db.move import TABLES, export_file, import_file, whole_file
from mail.db.postgres.migrate import tables_by_subject
from mail.db.store import Store
from mail.errors import StoreError
from tests.db.conftest import Rows
from tests.db.every_table import EXACT, ODD, PROCESSES, ROWS, fill
from tests.support.databases import DATABASES, Database
from tests.support.sql import change, rows

KINDS = list(DATABASES)
PAIRS = [(source, target) for source in KINDS for target in KINDS]
LOSSY = {"created_at", "updated_at", "history", "task_contributors", "remote_swarms"}
"""PostgreSQL gives these back in another form, in the documented tables."""
DOCUMENTED = {"agent_histories", "tasks", "task_events", "task_responses"}

Make = Callable[[str], Database]


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Return a function that makes an empty database of a kind."""

    def made(kind: str) -> Database:
        folder = tmp_path / f"database-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        return DATABASES[kind](request, folder)

    return made


@asynccontextmanager
async def opened(database: Database) -> AsyncIterator[Store]:
    store = database.store()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def exported(database: Database, file: Path) -> Path:
    async with opened(database) as store:
        with file.open("wb") as written:
            await export_file(store, written)
    return file


async def imported(database: Database, file: Path, adds: int | None = None) -> int:
    """Import a file; break off before so many additions of rows."""
    whole = whole_file(file)
    store = database.store()
    await store.driver.open()
    try:
        if adds is not None:
            break_off(store, adds)
        return await import_file(store, file, *whole)
    finally:
        await store.close()


def break_off(store: Store, adds: int) -> None:
    """Have the process of an import die, so to speak, in the middle."""
    left, add = [None] * adds, store.add_rows

    async def add_or_die(*given: Any) -> None:
        if not left:
            raise ConnectionAbortedError
        left.pop()
        await add(*given)

    store.add_rows = add_or_die  # type: ignore[method-assign]


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def comparable(file: Path) -> Counter[str]:
    """Return the rows of a file, without what no two kinds of databases agree on."""
    found: Counter[str] = Counter()
    for line in lines(file)[1:-1]:
        table, row = line["table"], line["row"]
        lossy = LOSSY if table in DOCUMENTED - {"task_events"} else LOSSY - {"created_at"}
        kept = {name: value for name, value in row.items() if name not in lossy}
        found[json.dumps([table, kept], sort_keys=True)] += 1
    return found


@pytest.mark.parametrize(("source", "target"), PAIRS)
async def test_every_row_of_every_table_arrives(
    make: Make, tmp_path: Path, source: str, target: str
) -> None:
    one, other = make(source), make(target)
    async with opened(one) as store:
        counts = await fill(store)
        assert await change(store, "UPDATE tasks SET node = $1", "a process") == counts["tasks"]
    file = await exported(one, tmp_path / "file.jsonl")
    header, end = whole_file(file)
    assert {table: total["rows"] for table, total in end.items()} == counts
    assert (header["swarms"], header["database_id"]) == (["example"], "database 1")
    expected = comparable(file)
    if (source, target) == ("postgres", "sqlite"):
        expected = Counter({row: n for row, n in expected.items() if '"swarm_registry"' not in row})
    assert await imported(other, file) == expected.total()
    assert comparable(await exported(other, tmp_path / "back.jsonl")) == expected
    async with opened(other) as store:
        await check_values(store)


async def check_values(store: Store) -> None:
    """Check what verbs and people read of a filled database."""
    unclaimed = "SELECT count(*) FROM tasks WHERE node IN ('', 'exported') AND epoch > 0"
    assert [tuple(row) for row in await rows(store, unclaimed)] == [(3,)]
    columns = f"SELECT {store.sql.task_columns} FROM tasks WHERE key = $1"  # noqa: S608
    (row,) = await rows(store, columns, 1)
    task = store.sql.as_task(tuple(row))
    assert (task.start_time, task.title) == (EXACT, f"title 1 {ODD}")
    assert task.task_contributors == ("user:al\0ice@example", "agent:\x1a0\x1a1@other", "\\u0000")
    columns = "SELECT CAST(history AS TEXT) FROM agent_histories WHERE agent_name LIKE '% 1 %'"
    ((history,),) = await rows(store, columns)
    (entry,) = json.loads(history)
    assert entry["content"].replace("\ufffd", "\0") == ODD
    assert entry["a"][:3] == [1, 0, 1e20]


def test_every_table_of_every_kind_is_moved_or_tells_of_processes(make: Make) -> None:
    """Who adds a table says which of the two it is."""
    with closing(sqlite3.connect(":memory:")) as connection:
        migrate(connection, packaged_migrations())
        here = "SELECT name FROM sqlite_master WHERE type = 'table'"
        tables = {name for (name,) in connection.execute(here)}
    tables = {name for name in tables if not name.startswith(("sqlite_", "desk_words_"))}
    subjects = tables_by_subject(packaged_migrations("postgresql")).values()
    elsewhere = {name for names in subjects for name in names} | {"schema_version"}
    assert tables | elsewhere == set(TABLES) | PROCESSES
    assert set(TABLES) - tables == {"swarm_registry"}


def test_both_kinds_have_the_same_schema() -> None:
    newest = [packaged_migrations(kind)[-1].name[5:] for kind in ("sqlite", "postgresql")]
    assert newest[0] == newest[1]


NUMBERED = {"messages": "seq", "webhooks": "id", "desk_members": "id", "history_entries": "id"}


@pytest.mark.parametrize(("source", "target"), PAIRS)
async def test_no_number_is_given_again(
    make: Make, tmp_path: Path, source: str, target: str
) -> None:
    """Also that of a row that is gone: who pages through records remembers it."""
    one, other = make(source), make(target)
    async with opened(one) as store:
        await fill(store)
        if source == "postgres":
            for table, column in NUMBERED.items():
                await rows(
                    store, f"SELECT setval(pg_get_serial_sequence($1, $2), {ROWS})", table, column
                )
        await change(store, "DELETE FROM webhooks WHERE id > 10")
        await change(store, "DELETE FROM desk_members")
    await imported(other, await exported(one, tmp_path / "file.jsonl"))
    async with opened(other) as store:
        for table in ("messages", "webhooks", "history_entries"):
            assert await copied_row(store, table, NUMBERED[table]) == ROWS + 1
        text = "INSERT INTO desk_members (swarm_name, thread_id, name, joined_at, added_by)"
        ((number,),) = await rows(store, f"{text} VALUES ('s', 't', 'n', '', '') RETURNING id")
        assert number == ROWS + 1


async def copied_row(store: Store, table: str, number: str) -> int:
    """Add a row like another one; return its number."""
    catalogue = await rows(store, store.sql.catalogue, store.sql.list([table]))
    names = ", ".join(name for of, name, *_ in catalogue if of == table and name != number)
    text = f"INSERT INTO {table} ({names}) SELECT {names} FROM {table} LIMIT 1 RETURNING {number}"  # noqa: S608
    ((made,),) = await rows(store, text)
    return int(made)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_import_that_was_cut_off_goes_on(make: Make, tmp_path: Path, kind: str) -> None:
    one, whole, cut = make("sqlite"), make(kind), make(kind)
    async with opened(one) as store:
        await fill(store)
    file = await exported(one, tmp_path / "file.jsonl")
    async with opened(one) as store:
        await change(store, "DELETE FROM webhooks")
    other_file = await exported(one, tmp_path / "other.jsonl")
    await imported(whole, file)
    for _ in range(3):
        with pytest.raises(ConnectionAbortedError):
            await imported(cut, file, adds=7)
        with pytest.raises(StoreError, match="holds part of an import; run 'mail db import'"):
            await cut.store().open()
    with pytest.raises(StoreError, match="holds part of another file"):
        await imported(cut, other_file)
    assert await imported(cut, file) == len(lines(file)) - 2
    results = [await exported(each, tmp_path / f"{n}.jsonl") for n, each in enumerate((whole, cut))]
    assert comparable(results[0]) == comparable(results[1]) == comparable(file)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_not_as_in_the_file_is_found(make: Make, tmp_path: Path, kind: str) -> None:
    one, other = make("sqlite"), make(kind)
    async with opened(one) as store:
        await fill(store)
    file = await exported(one, tmp_path / "file.jsonl")
    with pytest.raises(ConnectionAbortedError):
        await imported(other, file, adds=20)
    other.query("UPDATE messages SET payload = 'x' WHERE seq = 7 RETURNING 1")
    with pytest.raises(StoreError, match=r"differs from the file \(table messages: 130 rows"):
        await imported(other, file)
    with pytest.raises(StoreError, match="holds part of an import"):
        await other.store().open()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_database_with_data_is_refused_and_left_alone(
    make: Make, tmp_path: Path, store_rows: Rows, kind: str
) -> None:
    one, other = make("sqlite"), make(kind)
    file = await exported(one, tmp_path / "file.jsonl")
    async with opened(other) as store:
        await store_rows.begin(store)
        before = await exported_rows(store)
    with pytest.raises(StoreError, match="the database is not empty: the table tasks has rows"):
        await imported(other, file)
    async with opened(other) as store:
        assert await exported_rows(store) == before


async def exported_rows(store: Store) -> list[Any]:
    found: list[Any] = []
    await store.write_rows(found.append)
    return found[1:]


@pytest.fixture
def store_rows() -> Rows:
    return Rows()


def without_last_line(text: bytes) -> bytes:
    return b"".join(text.splitlines(keepends=True)[:-1])


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "no last line": (without_last_line, "damaged or cut off"),
    "half a line": (lambda text: text[: len(text) // 2], "damaged or cut off"),
    "a row lost": (
        lambda text: text.replace(text.splitlines(keepends=True)[5], b"", 1),
        "not as it was written; .*table messages: 129 rows, exported were 130",
    ),
    "a letter changed": (
        lambda text: text.replace(b"kind 3", b"kinb 3", 1),
        "table messages|calls",
    ),
    "no JSON": (lambda text: text.replace(b'"table"', b'"table', 1), "damaged or cut off"),
    "no row": (lambda text: text.replace(b'"row":{', b'"row":5,"x":{', 1), "damaged or cut off"),
    "another format": (lambda text: text.replace(b'"format":1', b'"format":2', 1), "this version"),
    "no header": (lambda text: text.partition(b"\n")[2], "not written by 'mail db export'"),
    "nothing": (lambda text: b"", "not written by 'mail db export'"),
    "a number": (lambda text: b"5\n", "not written by 'mail db export'"),
    "a picture": (lambda text: bytes(range(256)) * 100, "not written by 'mail db export'"),
}


@pytest.fixture(scope="module")
def exported_once() -> bytes:
    async def export() -> bytes:
        store, file = MemoryStore(), BytesIO()
        await fill(store)
        await export_file(store, file)
        return file.getvalue()

    return asyncio.run(export())


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused(exported_once: bytes, tmp_path: Path, damage: str) -> None:
    change_text, words = DAMAGES[damage]
    file = tmp_path / "file.jsonl"
    file.write_bytes(exported_once)
    whole_file(file)
    file.write_bytes(change_text(exported_once))
    with pytest.raises(StoreError, match=words):
        whole_file(file)


async def test_an_export_is_of_one_moment(database: Database, store_rows: Rows) -> None:
    """What others commit while it is written is not in it, not even in part."""
    async with opened(database) as store:
        await store_rows.begin(store, "before")
        texts: list[str] = []

        def write(line: dict[str, Any]) -> None:
            if not texts:
                add_elsewhere(database)
            texts.append(json.dumps(line))

        await store.write_rows(write)
        again: list[dict[str, Any]] = []
        await store.write_rows(again.append)
    assert any("before" in text for text in texts)
    assert not any("meanwhile" in text for text in texts)
    assert any("meanwhile" in json.dumps(line) for line in again)


def add_elsewhere(database: Database) -> None:
    """Commit a row on another connection."""
    database.query(
        "INSERT INTO tokens (token_hash, role, caller_id, label, created_at) "
        "VALUES ('meanwhile', 'user', 'bob', '', '') RETURNING 1"
    )


async def test_of_another_version_a_file_is_refused(make: Make, tmp_path: Path) -> None:
    file = await exported(make("sqlite"), tmp_path / "file.jsonl")
    file.write_bytes(file.read_bytes().replace(b'"schema":"', b'"schema":"other_', 1))
    other = make("sqlite")
    with pytest.raises(StoreError, match="of another version of MAIL"):
        await imported(other, file)
    async with opened(other) as store:
        assert len(await exported_rows(store)) == 3


async def test_rows_of_version_1_3_6_go_to_postgresql(make: Make, tmp_path: Path) -> None:
    """Its events have no description, and some rows belong to no task."""
    one, other = make("postgres"), make("postgres")
    async with opened(one) as store:
        await fill(store)
        old = "UPDATE task_events SET description = NULL, size = NULL, event_id = 'x' WHERE seq < 9"
        assert await change(store, old) == 8
        await change(
            store, "UPDATE agent_histories SET task = NULL, through = NULL WHERE through < 9"
        )
        await change(store, "UPDATE tasks SET created_at = NULL, updated_at = NULL")
        await change(store, "UPDATE task_responses SET response_text = NULL")
    file = await exported(one, tmp_path / "file.jsonl")
    await imported(other, file)
    assert comparable(await exported(other, tmp_path / "back.jsonl")) == comparable(file)
