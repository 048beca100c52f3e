"""``mail tasks``: the server's database, read beside the server, and the server itself."""

import asyncio
import json
import os
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from mail.cli.commands import main
from mail.client import MAILClient
from mail.db.records import Owner
from mail.server.app import create_app
from tests.cli.terminal import start
from tests.server.kit import (
    CALLERS,
    TOKENS,
    Script,
    Template,
    bearer,
    config,
    put_aside,
    serving,
)
from tests.support.sql import held_call, put_held

pytestmark = pytest.mark.e2e


def names_here() -> set[str]:
    return {path.name for path in Path().iterdir()}


async def mail(*arguments: str) -> int:
    """Run a command here, in a thread: it has a loop of its own."""
    return await asyncio.to_thread(main, arguments)


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with a configuration, and a database with two callers' tasks; its URL."""
    from mail.auth.callers import hash_token
    from mail.db.records import TokenRow
    from mail.db.urls import open_store

    monkeypatch.chdir(tmp_path)
    for name in ("DATABASE_URL", "MAIL_CONFIG_PATH", "MAIL_URL", "MAIL_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    url = f"sqlite:///{tmp_path / 'mail.db'}"
    (tmp_path / "mail.toml").write_text(
        f"[server.swarm]\nname = 'test-swarm'\n[server.store]\nurl = '{url}'\n"
    )
    store = open_store(url)
    await store.open()
    for who in ("alice", "bob"):
        role, identifier = CALLERS[who]
        row = TokenRow(hash_token(TOKENS[who]), role, identifier, "2026-01-01T00:00:00+00:00")
        await store.put_token(row)
    await store.close()
    return url


async def served(url: str, script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    """Have a server work on two callers' tasks, and look at them from outside meanwhile."""
    from mail.config import ClientConfig
    from mail.db.urls import open_store

    store = open_store(url)
    template = Template(script, breakpoint_tools=["send_interrupt"])
    app = create_app(config(shutdown_grace=0.5), template=template, store=store)  # type: ignore[arg-type]
    quick = ClientConfig(timeout=20.0)
    async with serving(app) as http:
        server = str(http.base_url).rstrip("/")
        async with (
            MAILClient(server, TOKENS["alice"], config=quick) as alice,
            MAILClient(server, TOKENS["bob"], config=quick) as bob,
        ):
            await alice.post_message("Hi", task_id="one")
            await alice.post_message("consult", task_id="two")
            await bob.post_message("Hi", task_id="one")
            slow = asyncio.create_task(bob.post_message("hang", task_id="slow"))
            await script.entered.wait()
            await check_a_running_task(server, capsys)
            script.gate.set()
            await asyncio.gather(slow, return_exceptions=True)
    await store.close()


async def check_a_running_task(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await mail("tasks", "list", "--state", "running") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["TASK", "OWNER", "STATE"],
        ["slow", "user:bob@test-swarm", "running"],
    ]
    assert await mail("tasks", "cancel", "slow") == 2
    assert "only the server that runs a task can do that" in capsys.readouterr().err
    assert await mail("tasks", "cancel", "slow", "--url", server, "-ak", TOKENS["alice"]) == 1
    assert "status code 404: task 'slow' not found" in capsys.readouterr().err
    assert await mail("tasks", "list", "--url", server, "-ak", TOKENS["bob"], "--json") == 0
    assert {task["task_id"] for task in json.loads(capsys.readouterr().out)} == {"one", "slow"}
    assert await mail("tasks", "cancel", "slow", "--url", server, "-ak", TOKENS["bob"]) == 0
    assert capsys.readouterr().out == "task 'slow' cancelled\n"


async def test_tasks_are_listed_shown_and_cancelled(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await served(place, Script(), capsys)
    assert await mail("tasks", "list", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    states = [(t["task_owner"].partition("@")[0], t["task_id"], t["status"]) for t in found]
    assert states == [
        ("user:alice", "two", "paused"),
        ("user:alice", "one", "completed"),
        ("user:bob", "slow", "cancelled"),
        ("user:bob", "one", "completed"),
    ]
    assert found[0]["breakpoints"][0]["name"] == "send_interrupt"
    assert await mail("tasks", "list", "--owner", "user:alice", "--limit", "1") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert await mail("tasks", "show", "two") == 0
    assert "waits for call-" in capsys.readouterr().out
    assert await mail("tasks", "show", "one") == 1
    assert "several callers have a task with this id" in capsys.readouterr().err
    assert await mail("tasks", "show", "one", "--owner", "user:bob", "--json") == 0
    assert json.loads(capsys.readouterr().out)["events"]


async def test_a_call_that_was_accepted_waits_for_nobody(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from mail.db.urls import open_store

    store, alice = open_store(place), Owner("test-swarm", "user", "alice")
    await store.open()
    await put_held(store, alice, "t", held_call("a"), held_call("b", status="accepted"))
    await store.close()
    for command in (("list",), ("show", "t")):
        assert await mail("tasks", *command, "--json") == 0
        found = json.loads(capsys.readouterr().out)
        [task] = found if isinstance(found, list) else [found]
        assert len(task["breakpoints"]) == 1


async def test_tasks_are_deleted_beside_the_server_and_by_it(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from mail.db.urls import open_store

    store, script = open_store(place), Script()
    template = Template(script, breakpoint_tools=["send_interrupt"])
    app = create_app(config(shutdown_grace=0.5), template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as http:
        server = str(http.base_url).rstrip("/")
        at_server = ("--url", server, "-ak", TOKENS["alice"])
        for task_id in ("one", "two", "three"):
            body = {"body": "Hi", "task_id": task_id}
            answer = await http.post("/message", json=body, headers=bearer("alice"))
            assert answer.status_code == 200
        assert await mail("tasks", "delete", "one", "two") == 0
        assert capsys.readouterr().out == "task 'one' deleted\ntask 'two' deleted\n"
        gone = await http.get("/tasks/one", headers=bearer("alice"))
        assert gone.status_code == 404
        assert await mail("tasks", "delete", "one") == 1
        assert "task 'one' not found" in capsys.readouterr().err
        paused = {"body": "consult", "task_id": "paused"}
        answer = await http.post("/message", json=paused, headers=bearer("alice"))
        assert answer.json()["status"] == "paused"
        assert await mail("tasks", "delete", "paused") == 1
        told = capsys.readouterr().err
        assert f"in use by the process with pid {os.getpid()}, which may go on with the" in told
        assert await mail("tasks", "delete", "paused", *at_server) == 0
        for task_id in ("paused", "kept"):
            paused["task_id"] = task_id
            answer = await http.post("/message", json=paused, headers=bearer("alice"))
            assert answer.json()["status"] == "paused"
        capsys.readouterr()
        assert await mail("tasks", "delete", "three", "--json", *at_server) == 0
        assert json.loads(capsys.readouterr().out) == {"task_id": "three", "deleted": True}
        slow = asyncio.create_task(
            http.post("/message", json={"body": "hang", "task_id": "s"}, headers=bearer("alice"))
        )
        await script.entered.wait()
        assert await mail("tasks", "delete", "s") == 1
        assert "task 's' is running; cancel it first" in capsys.readouterr().err
        assert await mail("tasks", "delete", "s", "--cancel") == 2
        assert "--url" in capsys.readouterr().err
        assert await mail("tasks", "delete", "s", "--cancel", *at_server) == 0
        assert (await slow).json()["status"] == "cancelled"
    await store.close()
    assert await mail("tasks", "delete", "kept") == 0  # nobody works on it any more


async def test_mail_that_was_set_aside_is_listed_tried_again_and_discarded(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from mail.db.records import Owner
    from mail.db.urls import open_store

    store, alice = open_store(place), Owner("test-swarm", "user", "alice")
    app = create_app(config(shutdown_grace=0.5), template=Template(Script()), store=store)  # type: ignore[arg-type]
    async with serving(app) as http:
        at_server = ("--url", str(http.base_url).rstrip("/"), "-ak", TOKENS["alice"])
        body = {"body": "Hi \x1b[31m", "task_id": "one"}
        answer = await http.post("/message", json=body, headers=bearer("alice"))
        assert answer.status_code == 200
        first, second = [await put_aside(store, alice, "one") for _ in range(2)]
        for where in ((), at_server):
            assert await mail("tasks", "set-aside", "one", "--json", *where) == 0
            found = json.loads(capsys.readouterr().out)
            assert [each["id"] for each in found] == [first, second]
        assert await mail("tasks", "set-aside", "one") == 0
        head, row, _ = capsys.readouterr().out.splitlines()
        assert head.split() == ["ID", "AGENT", "FROM", "WRITTEN", "SUBJECT", "REASON"]
        assert row.split()[:3] == [str(first), "supervisor", "alice"]
        assert "crashed 5 times" in row
        prompt = ("client", at_server[1], *at_server[2:], "set-aside")
        assert await mail(*prompt, "one") == 0
        assert capsys.readouterr().out.splitlines()[:2] == [head, row]
        assert await mail("tasks", "retry", "one", str(first)) == 2
        assert "only the server that runs a task can do that" in capsys.readouterr().err
        assert await mail("tasks", "retry", "one", str(first), *at_server) == 0
        assert capsys.readouterr().out == f"mail {first} is tried again\n"
        assert await mail("tasks", "discard", "one", str(second), "--json", *at_server) == 0
        told = {"task_id": "one", "id": second, "status": "discarded"}
        assert json.loads(capsys.readouterr().out) == told
        assert await mail("tasks", "discard", "one", str(second), *at_server) == 1
        assert f"has no mail {second} that was set aside" in capsys.readouterr().err
        assert await mail("tasks", "set-aside", "one", "--json") == 0
        assert capsys.readouterr().out == "[]\n"
    await store.close()


async def test_tasks_of_callers_without_a_token_are_listed(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from mail.core.tasks import TaskState
    from mail.db.commit import Commit
    from mail.db.records import Owner, TaskRow
    from mail.db.urls import open_store

    store = open_store(place)
    await store.open()
    stranger = Owner("test-swarm", "user", "vouched-for-elsewhere")
    row = TaskRow("done", str(stranger), (str(stranger),), "2026-01-01T00:00:00+00:00", "solo")
    row = row._replace(state=TaskState.COMPLETED)
    await store.commit(Commit(owner=stranger, task=row, new=True))
    await store.close()
    assert await mail("tasks", "list") == 0
    assert "user:vouched-for-elsewhere" in capsys.readouterr().out
    for command, what in (("tasks", "tasks"), ("outbox", "mail")):
        assert await mail(command, "list") == 0
        assert capsys.readouterr().err == ""  # the swarm has tasks, though perhaps no mail
        assert await mail(command, "list", "--swarm", "harbour", "--json") == 0
        shown = capsys.readouterr()
        assert shown.out == "[]\n"
        assert shown.err == (
            f"mail: no {what} of swarm 'harbour'; this database has 'test-swarm': use --swarm\n"
        )


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("list", "--owner", "alice"), 2, "--owner is written ROLE:ID"),
        (("list", "--limit", "0"), 2, "not in the range 1<=x"),
        (("list", "--limit", "x"), 2, "is not a valid integer range"),
        (("list", "--url", "http://[h"), 2, "invalid URL"),
        (("list", "--store", "memory://"), 2, "the server's store is in memory"),
        (("list", "--store", "sqlite:///missing.db"), 2, "there is no SQLite file 'missing.db'"),
        (("show", "x", "--store", "sqlite:///missing.db"), 2, "there is no SQLite file"),
        (("show", "nowhere"), 1, "task 'nowhere' not found"),
        (("list", "--url", "http://127.0.0.1:1"), 1, "Cannot connect"),
    ],
)
async def test_mistakes_are_told(
    place: str,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    problem: str,
) -> None:
    assert await mail("tasks", *arguments) == code
    assert problem in capsys.readouterr().err
    assert "missing.db" not in names_here()


@pytest.mark.parametrize("task", ["text", {"events": 5}, {"breakpoints": ["x"]}])
async def test_a_record_that_is_none_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], task: object
) -> None:
    monkeypatch.setattr(MAILClient, "get_task", AsyncMock(return_value=task))
    assert await mail("tasks", "show", "x", "--url", "http://h", "-ak", "k") == 1
    assert "mail: the server's answer is not as expected: " in capsys.readouterr().err


async def test_a_row_of_a_foreign_server_is_harmless(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = "\x1b]0;x\x07"
    found = {"t": {"task_id": bad, "status": bad, "start_time": bad}}
    monkeypatch.setattr(MAILClient, "get_tasks", AsyncMock(return_value=found))
    assert await mail("tasks", "list", "--url", "http://h", "-ak", "k") == 0
    assert "\x1b" not in capsys.readouterr().out


async def test_a_reader_that_leaves_early_hears_no_complaint(place: str) -> None:
    process = await start(Path.cwd(), "tasks", "list")
    process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
    assert process.stderr is not None
    assert await process.stderr.read() == b""
    assert await process.wait() == 1
