"""SQLite files, connections to them as the store needs them, and what is done on these.

Errors are told in the store's terms.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from mail.db.driver import Batch, Change, Query, Statement, Verb
from mail.errors import StoreError

T = TypeVar("T")

REFUSALS: Final = (sqlite3.Error, UnicodeEncodeError, OverflowError)
"""The errors of Python's module for statements and values that cannot be."""

_BUSY_SECONDS: Final = 5.0
_CHECKPOINT_PAGES: Final = 4000
_WAL_LIMIT_BYTES: Final = 16 * 1024 * 1024
_CACHE_KIB: Final = 16 * 1024


def create_file(path: Path) -> None:
    """Make an empty file that only its owner may read, unless the file exists.

    Raises:
        StoreError: the folder is missing or not writable, or the file has a second name.
    """
    try:
        # O_EXCL: closing a second handle of a live database would drop SQLite's own locks.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        pass
    except OSError as exc:
        raise StoreError(f"cannot create the file {path}: {exc.strerror}") from exc
    check_names(path)


def check_names(path: Path) -> None:
    """Refuse a file with hard links: each name has a log of its own, hidden from the others.

    Raises:
        StoreError: the file has more than one name.
    """
    if path.stat().st_nlink > 1:
        raise StoreError(
            f"the database {path} has another name, a hard link, which would damage it; "
            "remove the link, or replace it by a copy or a symbolic link"
        )


def connect_writer(path: Path, durability: str) -> sqlite3.Connection:
    """Open the one connection that writes: WAL, autocommit, and the asked durability."""
    connection = _connect(path)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        connection.close()
        raise StoreError(
            f"{path} cannot use a write-ahead log; is the file or its folder read-only?"
        )
    connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}")
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that cannot write."""
    connection = _connect(path)
    connection.execute("PRAGMA query_only = ON")
    return connection


def connect_read_only(path: Path) -> sqlite3.Connection:
    """Open a database without changing anything in its folder, if possible.

    Without a write-ahead log in use the file is opened as one that nobody changes: only then SQLite
    makes no files beside it.
    """
    log, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    in_use = log.exists() and (index.exists() or log.stat().st_size > 0)
    how = "mode=ro" if in_use else "mode=ro&immutable=1"
    return _connect(f"{path.as_uri()}?{how}", uri=True)


def check_integrity(connection: sqlite3.Connection, path: Path) -> None:
    """Read the whole file once.

    Raises:
        StoreError: it is damaged; the text says what SQLite found first.
    """
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StoreError(f"the database {path} is damaged: {verdict}")


def back_up(database: Path, copy: Path) -> int:
    """Copy all that was committed when the copy began; writers are not held up.

    Args:
        database: The file of the database.
        copy: The file to make, which only its owner may read. It exists once it is complete,
            checked and on the disk.

    Returns:
        The copy's bytes.

    Raises:
        StoreError: the copy exists, cannot be written, or is damaged like the database.
    """
    check_names(database)
    try:
        with (
            new_file(copy) as unfinished,
            closing(connect_reader(database)) as source,
            closing(sqlite3.connect(unfinished)) as target,
        ):
            source.backup(target)
            check_integrity(target, copy)
    except (OSError, sqlite3.Error) as error:
        raise as_store_error(error) from error
    return copy.stat().st_size


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Make a file under another name; at the end it is on the disk and has its own.

    Raises:
        StoreError: the file exists, or cannot be made.
    """
    if path.exists():
        raise StoreError(f"{path} exists; name a file that does not, or delete it first")
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.unlink(missing_ok=True)
    create_file(unfinished)
    try:
        yield unfinished
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)


def as_store_error(exc: Exception) -> StoreError:
    """Return an exception as the store's callers expect it. Values never get into the text."""
    if isinstance(exc, StoreError):
        return exc
    if isinstance(exc, UnicodeEncodeError):
        error = StoreError("text with unpaired surrogates cannot be stored")
    elif isinstance(exc, sqlite3.Error):
        error = StoreError(f"the database refused: {exc}")
    else:
        error = StoreError(f"the database failed: {type(exc).__name__}")
    error.__cause__ = exc
    return error


def _connect(path: Path | str, *, uri: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path,
        uri=uri,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    return connection


def run_verb(verb: Callable[[], Verb[T]], cursor: sqlite3.Cursor) -> T:
    """Run a verb's statements in the transaction that is open."""
    send = verb().send
    result: Any = None
    try:
        while True:
            result = _execute(cursor, send(result))
    except StopIteration as end:
        returned: T = end.value
        return returned


def _execute(cursor: sqlite3.Cursor, statement: Statement) -> Any:
    text = _numbered(statement.text)
    values: Any = statement.values
    kind = type(statement)
    if kind is Query:
        return cursor.execute(text, values).fetchall()
    if kind is Change:
        return cursor.execute(text, values).rowcount
    if kind is Batch and len(values) == 1:  # `executemany` costs more
        return cursor.execute(text, *values)
    if kind is Batch:
        return cursor.executemany(text, values)
    return [cursor.execute(text, row).lastrowid for row in values]


@lru_cache(maxsize=1024)
def _numbered(text: str) -> str:
    """Return a statement with its parameters as SQLite numbers them."""
    return text.replace("$", "?")
