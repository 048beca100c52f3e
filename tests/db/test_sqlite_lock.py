"""One owner per swarm and file, or one for the file, whatever happens to names and lock files."""

import asyncio
import contextlib
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import IO

import pytest

from mail.db.migrate import schema_version
from mail.db.records import MemoryRow, Owner, TokenRow
from mail.db.sqlite.driver import SQLiteStore
from mail.db.sqlite.lock import users_of
from mail.errors import StoreError, StoreLocked
from tests.db.process import beside


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mail.db"


@pytest.fixture
def owner(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that owns the database until its input ends."""
    with beside(path, "own") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        process.kill()


@pytest.fixture
def alpha(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that owns a swarm in the database until its input ends."""
    with beside(path, "own", "alpha") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        process.kill()


async def refused(path: Path, swarm: str | None = None) -> str:
    with pytest.raises(StoreLocked) as caught:
        await SQLiteStore(path, swarm=swarm).open()
    return str(caught.value)


def lock_files(path: Path) -> list[Path]:
    return [file for file in path.parent.iterdir() if ".lock" in file.name]


def remove(path: Path) -> Path:
    for file in lock_files(path):
        file.unlink()
    return path


def make_anew(path: Path) -> Path:
    for file in lock_files(path):
        file.rename(path.with_name(f"old {file.name}"))
        file.touch()
    return path


def move(path: Path) -> Path:
    return path.rename(path.with_name("moved.db"))


def link(path: Path) -> Path:
    path.with_name("link.db").symlink_to(path)
    return path.with_name("link.db")


def link_folder(path: Path) -> Path:
    path.with_name("folder").symlink_to(path.parent)
    return path.with_name("folder") / path.name


CHANGES = [remove, make_anew, move, link, link_folder]


@pytest.mark.parametrize("change", CHANGES)
async def test_a_second_process_is_refused_whatever_the_file_is_called(
    path: Path, owner: subprocess.Popen[str], change: Callable[[Path], Path]
) -> None:
    name = change(path)
    for _ in range(2):
        assert "is in use by " in await refused(name)
    [user] = users_of(name.resolve(), "alpha")
    assert user.process in ("another process", f"the process with pid {owner.pid}")
    owner.kill()
    owner.wait()
    assert users_of(name.resolve(), "alpha") == []
    store = SQLiteStore(name)
    await store.open()
    await store.close()


def descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@pytest.mark.parametrize("change", [lambda path: path, remove])
async def test_whoever_is_refused_keeps_no_descriptors(
    path: Path, owner: subprocess.Popen[str], change: Callable[[Path], Path]
) -> None:
    change(path)
    guest = SQLiteStore(path, exclusive=False)
    await guest.open()
    await refused(path)
    before = descriptors()
    for _ in range(3):
        for swarm in (None, "alpha"):
            assert "is in use by " in await refused(path, swarm)
        assert len(users_of(path, "alpha")) == 1
    assert descriptors() == before
    await guest.close()


async def test_a_swarm_that_is_served_here_is_refused_without_keeping_descriptors(
    path: Path,
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for swarm in ("alpha", "beta"):
            store = SQLiteStore(path, swarm=swarm)
            await store.open()
            stack.push_async_callback(store.close)
        before = descriptors()
        for swarm in ("alpha", "beta", None):
            await refused(path, swarm)
        assert descriptors() == before


async def test_a_hard_link_is_refused_to_owners_and_guests(
    path: Path, owner: subprocess.Popen[str]
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


async def test_a_copy_is_another_database(path: Path, owner: subprocess.Popen[str]) -> None:
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
    with beside(path, "look") as process:
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


async def write(store: SQLiteStore, swarm: str) -> None:
    row = MemoryRow((), "k", swarm, "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00+00:00")
    await store.put_memories(Owner(swarm, "user", "alice"), [row])


def whole_lines(file: IO[str]) -> set[str]:
    return {line.strip() for line in file if line.endswith("\n")}


class TestSwarms:
    """Owners of different swarms share a file."""

    @pytest.mark.parametrize("change", [lambda path: path, *CHANGES])
    async def test_another_swarm_is_welcome_and_the_same_one_is_refused(
        self, path: Path, alpha: subprocess.Popen[str], change: Callable[[Path], Path]
    ) -> None:
        name = change(path)
        for _ in range(2):
            assert "swarm 'alpha' in " in await refused(name, "alpha")
        [user] = users_of(name.resolve(), "alpha")
        assert user.swarm == "alpha"
        beta = SQLiteStore(name, swarm="beta")
        await beta.open()
        await write(beta, "beta")
        assert "is in use by " in await refused(name)
        assert {user.swarm for user in users_of(name.resolve(), "alpha")} == {"alpha", "beta"}
        with pytest.raises(StoreLocked, match="swarm 'alpha' in "):
            await beta.claim_swarm("alpha")
        alpha.kill()
        alpha.wait()
        await beta.claim_swarm("alpha")
        assert "is in use by " in await refused(name, "alpha")
        await beta.close()
        whole = SQLiteStore(name)
        await whole.open()
        assert "is in use by " in await refused(name, "alpha")
        await whole.claim_swarm("alpha")
        await whole.close()
        assert users_of(name.resolve(), "alpha") == []

    async def test_locks_of_processes_suffice_where_there_are_none_of_descriptions(
        self, path: Path
    ) -> None:
        def start(swarm: str) -> subprocess.Popen[str]:
            return beside(path, "own-by-process", swarm)

        with start("alpha") as alpha, start("beta") as beta:
            for process in (alpha, beta):
                assert process.stdout is not None
                assert process.stdout.readline() == "open\n"
            with start("alpha") as second:
                assert second.wait(30) == 1
            for process in (alpha, beta):
                process.kill()

    async def test_refusals_name_the_process(
        self, path: Path, alpha: subprocess.Popen[str]
    ) -> None:
        process = f"the process with pid {alpha.pid}"
        assert await refused(path, "alpha") == (
            f"swarm 'alpha' in {path} is in use by {process}; stop it, or name another swarm "
            "or another database file"
        )
        assert await refused(path) == (
            f"{path} is in use by {process} (swarm 'alpha'); stop it, or name another database file"
        )

    async def test_names_that_no_file_could_have_are_told_apart(self, path: Path) -> None:
        names = ["a", "A", "a/b", "a_b", "a b", "..", "x" * 200, "y" * 200, "\u00e9", "e\u0301"]
        stores = [SQLiteStore(path, swarm=name) for name in names]
        for store in stores:
            await store.open()
        for name in names:
            assert f"swarm '{name}' in " in await refused(path, name)
        for store in stores:
            await store.close()

    async def test_owners_that_start_at_once_wait_for_the_first(self, path: Path) -> None:
        processes = [beside(path, "own", f"swarm-{n}") for n in range(4)]
        try:
            for process in processes:
                assert process.stdout is not None
                assert await asyncio.to_thread(process.stdout.readline) == "open\n"
            assert len(users_of(path, "alpha")) == 4
        finally:
            for process in processes:
                process.kill()
                process.communicate()

    async def test_a_schema_is_upgraded_only_while_nobody_else_has_the_file(
        self, path: Path, alpha: subprocess.Popen[str]
    ) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            newest = schema_version(connection)
            connection.execute("DELETE FROM schema_version WHERE version = ?", (newest,))
            assert await refused(path, "beta") == (
                f"the database {path} has schema {newest - 1}, older than {newest} of this "
                f"version of MAIL, and is in use by the process with pid {alpha.pid} "
                "(swarm 'alpha'); stop every server of it, then start this one first"
            )
            assert schema_version(connection) == newest - 1

    async def test_the_last_owner_moves_the_log_into_the_file(self, path: Path) -> None:
        first, second = SQLiteStore(path, swarm="alpha"), SQLiteStore(path, swarm="beta")
        log = path.with_name("mail.db-wal")
        for store, swarm in ((first, "alpha"), (second, "beta")):
            await store.open()
            await write(store, swarm)
        await first.close()
        assert log.stat().st_size > 0
        await write(second, "beta")
        await second.close()
        assert not log.exists()

    async def test_a_revoked_token_is_revoked_for_all(self, path: Path) -> None:
        first, second = SQLiteStore(path, swarm="alpha"), SQLiteStore(path, swarm="beta")
        for store in (first, second):
            await store.open()
        token = TokenRow(token_hash="h", role="user", id="a", created_at="2026-01-01T00:00:00Z")
        await first.put_token(token)
        assert await second.find_token("h") == token
        await second.put_token(token._replace(revoked_at="2026-01-02T00:00:00Z"))
        found = await first.find_token("h")
        assert found is not None
        assert found.revoked_at is not None
        for store in (first, second):
            await store.close()

    async def test_the_death_of_one_under_load_costs_the_other_nothing(self, path: Path) -> None:
        """Both write without a pause; one is killed again and again, the other goes on."""
        rounds, told = 4, {"alpha": set[str](), "beta": set[str]()}
        with beside(path, "write", "beta", "only") as beta:
            assert beta.stdout is not None
            assert beta.stdout.readline() == "open\n"
            for n in range(rounds):
                with beside(path, "write", "alpha", f"round-{n}") as alpha:
                    assert alpha.stdout is not None
                    assert alpha.stdout.readline() == "open\n"
                    told["alpha"] |= {alpha.stdout.readline().strip() for _ in range(50)}
                    alpha.kill()
                    told["alpha"] |= whole_lines(alpha.stdout)
                told["beta"] |= {beta.stdout.readline().strip() for _ in range(50)}
            beta.kill()
            told["beta"] |= whole_lines(beta.stdout)
        store = SQLiteStore(path)
        await store.open()
        for swarm, tasks in told.items():
            owner = Owner(swarm, "user", "alice")
            kept = {row.task_id for row in await store.list_tasks(owner)}
            assert tasks <= kept
            assert len(kept) - len(tasks) <= 4 * rounds  # four callers wait at a time
            for task_id in kept:
                assert [event.seq for event in await store.events(owner, task_id)] == [1, 2]
        await store.close()

    async def test_one_that_writes_without_a_pause_starves_nobody(self, path: Path) -> None:
        with beside(path, "hold", "alpha") as alpha:
            assert alpha.stdout is not None
            assert alpha.stdout.readline() == "open\n"
            beta = SQLiteStore(path, swarm="beta")
            await beta.open()
            async with asyncio.timeout(20):
                for _ in range(5):
                    await write(beta, "beta")
            assert alpha.poll() is None
            await beta.close()
            alpha.kill()
