"""Callers' agents work in folders of their own, and remember for their own callers only."""

import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from mail import MAILAction, MAILSwarmTemplate
from mail.auth.callers import hash_token
from mail.core.call_context import CallContext, enter_call
from mail.db.memory import MemoryStore
from mail.db.records import TokenRow
from mail.server.app import create_app
from mail.stdlib.fs.actions import read_directory, read_file, write_file
from mail.stdlib.settings import Workspace, stray_files, workspace
from mail.utils.store import get_langmem_store
from tests.server.kit import CALLERS, TOKENS, bearer, config, serving
from tests.stdlib.test_swarm import definition, do

IDS = [
    "alice",
    "Alice",
    "ALICE",
    "alice ",
    "%41lice",
    "al/ice",
    "alice/../bob",
    ".",
    "..",
    "...",
    "%2e",
    "/etc",
    "~root",
    "a\\b",
    "nul\u2028line",
    "é",
    "e\u0301",
    "x" * 120,
    "x" * 256,
    "x" * 255 + "y",
    "X" * 256,
    "\N{GRINNING FACE}" * 256,
    "\N{GRINNING FACE}" * 255,
    "\udc80",
]


def act_as(identifier: str, role: str = "user") -> None:
    """Make the running test an agent's turn for a caller."""
    enter_call(CallContext(owner=("test", role, identifier)))


async def save(path: str, content: str) -> str:
    return await write_file.function({"path": path, "content": content})


def written(folder: Path) -> list[Path]:
    return list(folder.rglob("id.txt"))


async def load(path: str) -> str:
    return await read_file.function({"path": path})


async def test_each_caller_of_a_server_has_a_workspace_of_its_own(
    tmp_path: Path, configure: Callable[[str], None]
) -> None:
    async with served() as client:
        await told(client, "alice", "write_file", path="plan.txt", content="secret")
        for path in ("plan.txt", "../alice/plan.txt", "user/alice/plan.txt"):
            for other in ("bob", "admin"):
                assert "secret" not in await told(client, other, "read_file", path=path)
        assert "the directory is empty" in await told(client, "bob", "read_directory", path=".")
        assert "secret" in await told(client, "alice", "read_file", path="plan.txt")
        assert (tmp_path / "workspace/user/alice/plan.txt").read_text() == "secret"

        configure(f'[stdlib.fs]\nroot = "{tmp_path}/workspace"\nshared = true\n')
        await told(client, "alice", "write_file", path="all.txt", content="for all")
        assert "for all" in await told(client, "bob", "read_file", path="all.txt")
        assert (tmp_path / "workspace/all.txt").read_text() == "for all"


async def test_a_caller_fills_its_own_workspace_and_no_more(
    tmp_path: Path, configure: Callable[[str], None]
) -> None:
    root = f'[stdlib.fs]\nroot = "{tmp_path}/workspace"\n'
    configure(f"{root}max_total_bytes = 3000\n")
    kilobyte = "x" * 1000
    async with served() as client:

        async def write(path: str, content: str, who: str = "alice") -> str:
            return await told(client, who, "write_file", path=path, content=content)

        for number in range(3):
            assert "successfully" in await write(f"{number % 2}/{number}.txt", kilobyte)
        assert await write("new/3.txt", "y") == (
            "ERROR: the workspace has 3,000 bytes, this would add 1, and the limit is 3,000; "
            "delete files that are not needed, or have the operator raise "
            "[stdlib.fs] max_total_bytes"
        )
        assert not (tmp_path / "workspace/user/alice/new").exists()
        assert "would add 1," in await write("0/0.txt", kilobyte + "y")
        assert (tmp_path / "workspace/user/alice/0/0.txt").read_text() == kilobyte
        assert "successfully" in await write("0/0.txt", "z" * 1000)
        assert "successfully" in await write("bob.txt", kilobyte, who="bob")
        assert "successfully" in await told(client, "alice", "delete_file", path="1/1.txt")
        assert "successfully" in await write("new/3.txt", kilobyte)
        configure(f"{root}max_total_bytes = 0\n")
        assert "successfully" in await write("4.txt", kilobyte)
        configure(f"{root}shared = true\nmax_total_bytes = 5500\n")  # there are 5,000 in all
        assert "has 5,000 bytes" in await write("all.txt", kilobyte)


async def test_a_caller_makes_so_many_files_and_directories(
    tmp_path: Path, configure: Callable[[str], None]
) -> None:
    configure(f'[stdlib.fs]\nroot = "{tmp_path}/workspace"\nmax_files = 3\n')
    async with served() as client:

        async def make(tool: str, **arguments: str) -> str:
            return await told(client, "alice", tool, **arguments)

        assert "successfully" in await make("write_file", path="a/1.txt", content="")
        assert "successfully" in await make("create_directory", path="b")
        full = (
            "ERROR: the workspace has 3 files and directories, and the limit is 3; delete files "
            "that are not needed, or have the operator raise [stdlib.fs] max_files"
        )
        assert await make("write_file", path="c/d/2.txt", content="") == full
        assert await make("create_directory", path="c/d") == full
        assert sorted(path.name for path in (tmp_path / "workspace/user/alice").iterdir()) == [
            "a",
            "b",
        ]
        assert "already exists" in await make("create_directory", path="b")
        assert "successfully" in await make("write_file", path="a/1.txt", content="more")
        assert "successfully" in await make("delete_file", path="a/1.txt")
        assert "successfully" in await make("write_file", path="2.txt", content="")
    assert "successfully" in await save("own.txt", "of a program that calls the action by hand")


@asynccontextmanager
async def served() -> AsyncIterator[Any]:
    """Serve the swarm of test_swarm.py to the kit's callers."""
    store = MemoryStore()
    for who, (role, identifier) in CALLERS.items():
        row = TokenRow(hash_token(TOKENS[who]), role, identifier, created_at="2026-01-01")
        await store.put_token(row)
    async with serving(create_app(config(), template=template(), store=store)) as client:
        yield client


def template(*more: MAILAction) -> MAILSwarmTemplate:
    made = MAILSwarmTemplate.from_swarm_json(json.dumps(definition()))
    made.agents[0].actions.extend(more)
    return made


async def told(client: httpx.AsyncClient, who: str, tool: str, **arguments: str) -> str:
    """Let a caller's agent make a call, and return what it was told."""
    body = {"body": json.dumps([[tool, arguments]])}
    answer = await client.post("/message", json=body, headers=bearer(who))
    return str(json.loads(answer.json()["response"])[0])


async def test_any_ids_have_different_folders_that_stay_in_the_root(tmp_path: Path) -> None:
    for number, identifier in enumerate(IDS):
        act_as(identifier)
        assert await load("id.txt") == "Error: file not found at id.txt"
        assert await save("id.txt", str(number)) == "successfully wrote to id.txt"
    folders = {path.parent for path in written(tmp_path)}
    assert {folder.parent for folder in folders} == {tmp_path / "workspace" / "user"}
    # Not even where capitals and forms of Unicode are not told apart.
    assert len({folder.name.casefold() for folder in folders}) == len(IDS)
    assert all(folder.name.isascii() and len(folder.name) <= 120 for folder in folders)
    act_as("alice", role="admin")
    assert await load("id.txt") == "Error: file not found at id.txt"


async def test_links_between_callers_folders_are_refused(tmp_path: Path) -> None:
    act_as("alice")
    await save("plan.txt", "secret")
    users = tmp_path / "workspace" / "user"
    (users / "bob").symlink_to(users / "alice")
    (tmp_path / "workspace" / "agent").symlink_to(users)
    for identifier, role in (("bob", "user"), ("alice", "agent")):
        act_as(identifier, role)
        assert await load("plan.txt") == "Error: plan.txt leads through a symbolic link"
        assert await save("plan.txt", "x") == "Error: plan.txt leads through a symbolic link"
        answer = await read_directory.function({"path": "."})
        assert answer == "Error: . leads through a symbolic link"
    assert (users / "alice" / "plan.txt").read_text() == "secret"


async def test_what_is_in_the_way_of_a_callers_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "user").write_text("of an earlier version")
    act_as("alice")
    assert "a part of it is a file" in await save("a.txt", "x")


def test_a_program_that_calls_an_action_by_hand_works_in_the_root(tmp_path: Path) -> None:
    from mail.config.stdlib import FsConfig

    assert workspace(FsConfig()) == Workspace(tmp_path / "workspace")


async def test_files_of_an_earlier_version_are_told_at_the_start(
    tmp_path: Path, configure: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "workspace"
    assert stray_files(template()) is None
    for name in ("user", "admin", "agent"):
        (root / name).mkdir(parents=True)
    assert stray_files(template()) is None
    for number in range(5):
        (root / f"old{number}.txt").write_text("x")
    caplog.set_level(logging.WARNING)
    async with served():
        [line] = [r.getMessage() for r in caplog.records if "workspace" in r.getMessage()]
    assert line == (
        f"the workspace {root} holds files that no caller's agents see ('old0.txt', 'old1.txt', "
        "'old2.txt', …): move them to ROLE/ID in it, or set shared = true under [stdlib.fs]"
    )
    without = template()
    without.actions = [a for a in without.actions if not a.name.endswith(("_file", "_directory"))]
    for agent in without.agents:
        agent.actions = list(without.actions)
    assert stray_files(without) is None
    configure(f'[stdlib.fs]\nroot = "{root}"\nshared = true\n')
    assert stray_files(template()) is None


async def test_a_memory_store_in_an_action_is_the_callers_own() -> None:
    async def remember(args: dict[str, Any]) -> str:
        async with get_langmem_store() as memories:
            if args.get("text"):
                await memories.aput(("doer_memory",), "k", {"text": args["text"]})
            found = await memories.asearch(("doer_memory",))
        return f"I know {', '.join(item.value['text'] for item in found) or 'nothing'}."

    properties = {"type": "object", "properties": {"text": {"type": "string"}}}
    action = MAILAction("remember", "Remember a text.", properties, remember)
    swarm = template(action)
    store = MemoryStore()
    await store.open()
    alice = swarm.instantiate({"user_token": "x"}, user_id="alice", store=store)
    bob = swarm.instantiate({"user_token": "x"}, user_id="bob", store=store)
    try:
        assert "I know Alice's." in (await do(alice, ("remember", {"text": "Alice's"})))[0]
        assert "I know nothing." in (await do(bob, ("remember", {})))[0]
        assert "I know Bob's." in (await do(bob, ("remember", {"text": "Bob's"})))[0]
        # It is the swarm's own store: another task finds it.
        assert "I know Alice's." in (await do(alice, ("remember", {})))[0]
        async with get_langmem_store(store) as common:
            assert await common.asearch(("doer_memory",)) == []
    finally:
        await alice.shutdown()
        await bob.shutdown()
