"""One process owns a database file, whatever happens to its names and its lock file."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from mail.db.sqlite.lock import LockFile
from mail.db.sqlite.store import SQLiteStore
from mail.errors import StoreError, StoreLocked

OWN = """
import asyncio, sys
from mail.db.sqlite.store import SQLiteStore

async def own():
    store = SQLiteStore(sys.argv[1])
    await store.open()
    print("open", flush=True)
    sys.stdin.readline()
    await store.close()

asyncio.run(own())
"""
LOOK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM tasks")
connection.close()
"""


def run(code: str, path: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mail.db"


@pytest.fixture
def owner(path: Path) -> "Iterator[subprocess.Popen[str]]":
    """Another process that owns the database until its input ends."""
    with run(OWN, path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        process.kill()


async def refused(path: Path) -> str:
    with pytest.raises(StoreLocked) as caught:
        await SQLiteStore(path).open()
    return str(caught.value)


def remove(path: Path) -> Path:
    path.with_name("mail.db.lock").unlink()
    return path


def make_anew(path: Path) -> Path:
    lock = path.with_name("mail.db.lock")
    lock.rename(path.with_name("old.lock"))
    lock.touch()
    return path


def move(path: Path) -> Path:
    return path.rename(path.with_name("moved.db"))


def link(path: Path) -> Path:
    path.with_name("link.db").symlink_to(path)
    return path.with_name("link.db")


def link_folder(path: Path) -> Path:
    path.with_name("folder").symlink_to(path.parent)
    return path.with_name("folder") / path.name


@pytest.mark.parametrize("change", [remove, make_anew, move, link, link_folder])
async def test_a_second_process_is_refused_whatever_the_file_is_called(
    path: Path, owner: "subprocess.Popen[str]", change: Callable[[Path], Path]
) -> None:
    name = change(path)
    for _ in range(2):
        assert "is in use by " in await refused(name)
    assert LockFile(name.resolve()).holder() in (
        "another process",
        f"the process with pid {owner.pid}",
    )
    owner.kill()
    owner.wait()
    assert LockFile(name.resolve()).holder() is None
    store = SQLiteStore(name)
    await store.open()
    await store.close()


async def test_a_hard_link_is_refused_to_owners_and_guests(
    path: Path, owner: "subprocess.Popen[str]"
) -> None:
    other = path.with_name("other.db")
    other.hardlink_to(path)
    for store in (SQLiteStore(other), SQLiteStore(other, exclusive=False)):
        with pytest.raises(StoreError, match=r"in use by another|has another name, a hard link"):
            await store.open()
    other.unlink()
    guest = SQLiteStore(path, exclusive=False)
    await guest.open()
    await guest.close()


async def test_a_copy_is_another_database(path: Path, owner: "subprocess.Popen[str]") -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM INTO ?", (str(path.with_name("copy.db")),))
    shutil.copy(path.with_name("copy.db"), path.with_name("copy of copy.db"))
    stores = [SQLiteStore(path.with_name(name)) for name in ("copy.db", "copy of copy.db")]
    for store in stores:
        await store.open()
    for store in stores:
        await store.close()


async def test_a_refusal_in_the_owners_process_leaves_sqlites_locks_in_place(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    remove(path)
    assert "another process" in await refused(path)
    look(path)
    assert path.with_name("mail.db-wal").exists()
    await store.close()
    assert not path.with_name("mail.db-wal").exists()


async def test_an_owner_that_closes_leaves_the_locks_of_guests_in_its_process(path: Path) -> None:
    store, guest = SQLiteStore(path), SQLiteStore(path, exclusive=False)
    await store.open()
    await guest.open()
    await store.close()
    look(path)
    assert path.with_name("mail.db-wal").exists()
    await guest.close()


def look(path: Path) -> None:
    """Open and close the database in another process, which tidies up when it is the last."""
    with run(LOOK, path) as process:
        assert process.wait(30) == 0


async def test_opening_and_closing_keeps_no_descriptor(path: Path) -> None:
    def count() -> int:
        found = 0
        for entry in Path("/dev/fd").iterdir():
            with suppress(OSError):
                found += entry.readlink().parent == path.parent
        return found

    for _ in range(3):
        store = SQLiteStore(path)
        await store.open()
        await store.close()
        assert count() == 0
