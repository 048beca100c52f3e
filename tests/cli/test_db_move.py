"""``mail db export`` and ``mail db import``: what they print, make and refuse."""

import asyncio
import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from mail.client import MAILClient
from mail.db.sqlite.lock import DatabaseLock
from tests.cli.conftest import Mail
from tests.cli.test_server_process import Place, quick, serving
from tests.support.postgres import PASSWORD, execute, query

ALICE = ("token", "create", "--role", "user", "--id", "alice")
TOKENS = "SELECT caller_id FROM tokens"


def tokens(path: str) -> list[tuple[str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(TOKENS).fetchall()


def test_a_database_goes_to_postgresql_and_back(mail: Mail, tmp_path: Path, dsn: str) -> None:
    assert mail(*ALICE).code == 0
    done = mail("db", "export", "all.jsonl")
    assert (done.code, done.out, done.err) == (0, "all.jsonl: 3 rows\n", "")
    assert (tmp_path / "all.jsonl").stat().st_mode & 0o777 == 0o600
    assert mail("db-init", "--store", dsn).code == 0
    execute(dsn, 'CREATE TABLE "Other Program" ("Id" BIGINT GENERATED ALWAYS AS IDENTITY)')
    done = mail("db", "import", "all.jsonl", DATABASE_URL=dsn)
    assert (done.code, done.out, done.err) == (0, "3 rows imported and checked\n", "")
    assert query(dsn, TOKENS) == [("alice",)]
    (ids,) = query(dsn, "SELECT id FROM database_id")
    done = mail("db", "export", "back.jsonl", "--json", DATABASE_URL=dsn)
    assert json.loads(done.out) == {"file": "back.jsonl", "rows": 3}
    done = mail("db", "import", "back.jsonl", "--store", "sqlite:///back.db", "--json")
    assert json.loads(done.out) == {"rows": 3}
    assert tokens("back.db") == [("alice",)]
    with closing(sqlite3.connect("back.db")) as connection:
        assert connection.execute("SELECT id FROM database_id").fetchall() == [ids]
    assert (tmp_path / "back.db").stat().st_mode & 0o777 == 0o600


def test_an_export_to_standard_output_is_nothing_but_the_file(mail: Mail, tmp_path: Path) -> None:
    assert mail(*ALICE).code == 0
    done = mail("db", "export", "-")
    (tmp_path / "piped.jsonl").write_text(done.out)
    assert (done.code, done.err) == (0, "")
    assert mail("db", "import", "piped.jsonl", "--store", "sqlite:///piped.db").code == 0
    assert tokens("piped.db") == [("alice",)]


def test_a_registry_that_sqlite_does_not_keep_is_told(mail: Mail, tmp_path: Path, dsn: str) -> None:
    assert mail("db-init", "--store", dsn).code == 0
    execute(dsn, "INSERT INTO swarm_registry VALUES ('example', 1, '{\"endpoints\": {}}')")
    assert mail("db", "export", "all.jsonl", "--store", dsn).code == 0
    done = mail("db", "import", "all.jsonl", "--store", "sqlite:///new.db")
    assert done.code == 0
    assert "registries of other swarms, which SQLite does not keep" in done.err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["export", "there.jsonl"], 1, "there.jsonl exists; name a file that does not, or delete"),
        (["export", "gone/all.jsonl"], 1, "cannot create the file gone/all.jsonl"),
        (["export", "all.jsonl", "--store", "sqlite:///gone.db"], 2, "there is no SQLite file"),
        (["export", "all.jsonl", "--store", "memory://"], 2, "the server's store is in memory"),
        (["import", "gone.jsonl", "--store", "sqlite:///new.db"], 1, "No such file"),
        (["import", "there.jsonl", "--store", "sqlite:///new.db"], 1, "was not written by 'mail"),
        (["import", "good.jsonl"], 1, "the database is not empty: the table tokens has rows"),
        (["import", "good.jsonl", "--store", "postgresql://u:hunter2@127.0.0.1:1/d"], 1, "connect"),
    ],
)
def test_a_refusal_leaves_everything_as_it_was(
    mail: Mail, tmp_path: Path, words: Iterable[str], code: int, told: str
) -> None:
    assert mail(*ALICE).code == 0
    assert mail("db", "export", "good.jsonl").code == 0
    (tmp_path / "there.jsonl").write_text("precious\n")
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if "mail.db-" not in path.name}
    done = mail("db", *words)
    assert (done.code, told in done.err, "hunter2" in done.err) == (code, True, False), done.err
    assert done.err.count("\n") == 1
    after = {path for path in tmp_path.iterdir() if "mail.db" not in path.name}
    assert after == {path for path in before if "mail.db" not in path.name}
    assert tokens("mail.db") == [("alice",)]


def test_a_file_in_use_is_no_target(mail: Mail, tmp_path: Path) -> None:
    assert mail(*ALICE).code == 0
    assert mail("db", "export", "all.jsonl").code == 0
    lock = DatabaseLock(tmp_path / "new.db", None)
    lock.acquire()
    try:
        done = mail("db", "import", "all.jsonl", "--store", "sqlite:///new.db")
    finally:
        lock.release()
    assert (done.code, "in use by" in done.err) == (1, True)


@pytest.mark.e2e
async def test_no_server_works_on_the_target_of_an_import(tmp_path: Path, dsn: str) -> None:
    """An import refuses a database with a server, and a server one with part of an import."""
    async with serving(tmp_path) as place:
        async with MAILClient(place.url, place.token("alice"), config=quick()) as client:
            assert "42" in (await client.post_message("What is 6 * 7?"))["response"]
        done = await asyncio.to_thread(place.run, "db", "export", "all.jsonl")
        assert done.returncode == 0, done.stderr
        await check_refused_in_use(place, "sqlite:///mail.db")
        await place.stop()
        place.flags = ("--store", dsn)
        await place.start()
        await check_refused_in_use(place, dsn)
        await place.stop()
    execute(dsn, "INSERT INTO schema_version (version, name) VALUES (-1, 'other 7')")
    for words in (["server"], ["db-init"], ["db", "export", "x.jsonl"], ["token", "list"]):
        done = place.run(*words, "--store", dsn)
        assert done.returncode == 1
        assert "the database holds part of an import; run 'mail db import'" in done.stderr
    done = place.run("db", "import", "all.jsonl", "--store", dsn)
    assert (done.returncode, "part of another file" in done.stderr) == (1, True)
    assert PASSWORD not in done.stderr


async def check_refused_in_use(place: Place, store: str) -> None:
    done = await asyncio.to_thread(place.run, "db", "import", "all.jsonl", "--store", store)
    assert (done.returncode, "the database is in use by" in done.stderr) == (1, True), done.stderr
