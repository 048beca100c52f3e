"""``mail db backup``: a copy of a database in use holds what was answered before it was made."""

import asyncio
import json
import sqlite3
import subprocess
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from mail.client import MAILClient
from tests.cli.conftest import Mail
from tests.cli.test_server_process import quick, serving

pytestmark = pytest.mark.e2e

ASKED = 16


async def test_a_backup_of_a_busy_server_has_every_task_that_was_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as place:
        token = place.token("alice")
        answered: list[str] = []
        enough = asyncio.Event()

        async def ask(client: MAILClient) -> None:
            while not enough.is_set():
                await client.post_message("What is 6 * 7?", task_id=f"task-{len(answered)}")
                answered.append(f"task-{len(answered)}")

        async with MAILClient(place.url, token, config=quick()) as client:
            asking = asyncio.create_task(ask(client))
            while len(answered) < ASKED:
                assert not asking.done(), asking
                await asyncio.sleep(0.01)
            before = list(answered)
            done = await asyncio.to_thread(place.run, "db", "backup", "copy.db")
            enough.set()
            await asking
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"copy.db: {(tmp_path / 'copy.db').stat().st_size:,} bytes\n"
        await place.stop()
        restore(tmp_path)
        await place.start()
        async with MAILClient(place.url, token, config=quick()) as client:
            tasks = await client.get_tasks()
            assert [name for name in before if not tasks[name]["completed"]] == []
            again = await client.post_message("What is 2 * 3?", task_id=before[0])
            assert "6" in again["response"]


def restore(folder: Path) -> None:
    """Do what docs/operations.md says."""
    command = "rm -f mail.db-wal mail.db-shm && cp copy.db mail.db"
    subprocess.run(["bash", "-c", command], cwd=folder, check=True)


def test_commits_go_on_during_a_backup(mail: Mail, tmp_path: Path) -> None:
    """A writer in the middle of a transaction neither waits nor gets into the copy."""
    assert mail("token", "create", "--role", "user", "--id", "alice").code == 0
    with closing(sqlite3.connect("mail.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM tokens")
        assert json.loads(mail("db", "backup", "copy.db", "--json").out)["file"] == "copy.db"
        writer.execute("COMMIT")
    with closing(sqlite3.connect("copy.db")) as copy:
        assert copy.execute("SELECT caller_id FROM tokens").fetchall() == [("alice",)]
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["there.db"], 1, "there.db exists; name a file that does not, or delete it first"),
        (["gone/copy.db"], 1, "cannot create"),
        (["copy.db", "--store", "sqlite:///gone.db"], 2, "there is no SQLite file"),
        (["copy.db", "--store", "postgresql://u:hunter2@h/d"], 2, "back it up with pg_dump"),
        (["copy.db", "--store", "memory://"], 2, "the server's store is in memory"),
    ],
)
def test_a_refused_backup_leaves_everything_as_it_was(
    mail: Mail, tmp_path: Path, arguments: Iterable[str], code: int, words: str
) -> None:
    assert mail("token", "create", "--role", "user", "--id", "alice").code == 0
    (tmp_path / "there.db").write_text("precious")
    before = sorted(tmp_path.iterdir())
    done = mail("db", "backup", *arguments)
    assert (done.code, words in done.err, "hunter2" in done.err) == (code, True, False)
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "there.db").read_text() == "precious"


def test_a_damaged_database_is_not_backed_up(mail: Mail, tmp_path: Path) -> None:
    assert mail("token", "create", "--role", "user", "--id", "alice").code == 0
    with (tmp_path / "mail.db").open("rb+") as file:
        file.seek(8192)
        file.write(b"\xff" * 65536)
    done = mail("db", "backup", "copy.db")
    assert (done.code, done.err[:6]) == (1, "mail: ")
    assert not list(tmp_path.glob("copy.db*"))
