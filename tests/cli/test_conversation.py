"""A conversation as a person sees it: the screens of a terminal, also of odd ones."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mail.auth.callers import hash_token
from mail.cli.commands import main
from mail.client import MAILClient
from mail.db.memory import MemoryStore
from mail.db.records import TokenRow
from mail.db.urls import open_store
from mail.server.app import create_app
from scripts.ports import free_port
from tests.cli import terminal as terminals
from tests.cli.terminal import Done, Terminal, terminal
from tests.server import conftest as served
from tests.server.kit import CALLERS, TOKENS, Script, Template, config, running_server
from tests.server.test_approvals import SENT, swarm

pytestmark = pytest.mark.e2e

store = served.store

EVIL = "\x1b[2J\x1b]52;c;ZXZpbA==\x07\x1b]8;;http://evil.example\x07x\x9b31m\u202eabc"


def arguments(server: str) -> list[str]:
    return ["client", server, "--api-key", TOKENS["alice"]]


class Restarted:
    """A server that stops and starts again at the same address, with the same database."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.script = Script()
        self._folder = folder
        self._running = AsyncExitStack()

    async def start(self) -> None:
        store = open_store(f"sqlite:///{self._folder / 'mail.db'}")
        await store.open()
        for who in ("alice", "admin"):
            row = TokenRow(hash_token(TOKENS[who]), *CALLERS[who], "2026-01-01T00:00:00+00:00")
            await store.put_token(row)
        template = Template(self.script, breakpoint_tools=["send_interrupt"])
        app = create_app(config(shutdown_grace=0.1), template=template, store=store)  # type: ignore[arg-type]
        self._running.push_async_callback(store.close)
        await self._running.enter_async_context(running_server(app, port=self.port))

    async def stop(self) -> None:
        await self._running.aclose()
        self._running = AsyncExitStack()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Restarted]:
    made = Restarted(tmp_path)
    await made.start()
    yield made
    made.script.gate.set()
    await made.stop()


async def test_a_conversation_goes_on_through_a_restart(
    tmp_path: Path, place: Restarted, capsys: pytest.CaptureFixture[str]
) -> None:
    async with terminal(tmp_path, arguments(place.url), size=(100, 40)) as person:
        await person.see("mail>")
        person.type("hang on, it's Friday")
        await place.script.entered.wait()
        await person.see(r"supervisor · \d")
        await place.stop()
        await person.see("connection lost, trying again")
        place.script.gate.set()
        await place.start()
        await person.see(r"You said: hang on, it's Friday.*task \S{8} completed.*mail>")
        assert sum("You said" in line for line in person.lines) == 1
        [task_id] = re.findall(r"task (\S{8}) completed", "\n".join(person.lines))
        person.type("and on?")
        await person.see(r"You said: and on.*mail>")
        person.type("/exit")
        assert await person.end() == 0
    await watched(place, task_id, capsys)


async def test_a_busy_model_and_the_step_limit_are_told(tmp_path: Path, place: Restarted) -> None:
    async with terminal(tmp_path, arguments(place.url), size=(100, 40)) as person:
        await person.see("mail>")
        person.type("be busy and hang on")
        told = r"429 from openai/gpt-5-mini, next attempt in 12 s"
        await person.see(rf"model_retry  agent supervisor: 429 .*supervisor: {told} · \d")
        place.script.gate.set()
        await person.see("You said: be busy and hang on.*mail>")
        person.type("/new waste it all")
        await person.see(r"completed.*ended by its step limit \(task_message_limit\).*mail>")
        person.type("/exit")
        assert await person.end() == 0


async def watched(place: Restarted, task_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Look at the whole task with ``mail watch``, which begins like the conversation."""
    who = ["--url", place.url, "-ak", TOKENS["alice"]]
    assert await asyncio.to_thread(main, ["watch", task_id, *who]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["alice → supervisor", "  hang on, it's Friday"]
    answers = ["You said: hang on, it's Friday", "You said: and on?"]
    assert [line[2:] for line in lines if line.startswith("  You said")] == answers
    assert "\x1b" not in "".join(lines)
    assert await asyncio.to_thread(main, ["watch", task_id, "--json", *who]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [e["data"]["response"] for e in events if e["event"] == "task_complete"] == answers
    last = int(events[-1]["id"])
    assert await asyncio.to_thread(main, ["watch", task_id, "-a", str(last), *who]) == 0
    assert capsys.readouterr().out == ""
    assert await asyncio.to_thread(main, ["watch", "none", *who]) == 1
    assert "error watching task: there is no task 'none'" in capsys.readouterr().err
    admin = ["watch", task_id, "--json", "--url", place.url, "-ak", TOKENS["admin"]]
    assert await asyncio.to_thread(main, admin) == 1  # the beginning of an id of somebody else's
    whole = events[0]["data"]["task_id"]
    admin[1:2] = [whole, "--owner", "user:alice"]
    assert await asyncio.to_thread(main, admin) == 0
    seen = [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()[1:]]
    assert seen == [event["id"] for event in events]
    assert await asyncio.to_thread(main, ["watch", whole, "--owner", "user:bob", *who]) == 1
    assert "only administrators see the tasks of other callers" in capsys.readouterr().err
    assert await asyncio.to_thread(main, ["watch", "x", "--url", "http://127.0.0.1:1"]) == 4


async def test_calls_that_wait_are_decided_at_the_prompt(
    tmp_path: Path, store: MemoryStore
) -> None:
    SENT.clear()
    app = create_app(config(shutdown_grace=0.5), template=swarm(), store=store)
    async with (
        running_server(app) as server,
        MAILClient(server.url, TOKENS["alice"]) as client,
        terminal(tmp_path, arguments(server.url), size=(100, 40)) as person,
    ):

        async def calls() -> dict[str, str]:
            """Return the ids of the open calls, by whom they write to."""
            found = (await client.get_approvals())["approvals"]
            return {one["action_request"]["args"]["to"]: one["approval_id"] for one in found}

        await person.see("mail>")
        await person.ask(
            "say send", r"send waits for you.*/approve \w{8} · /edit.*task \S{8} paused"
        )
        ids = await calls()
        await person.ask("/approvals", r"send\(to=\"ben\"\).*supervisor waits · /approve /edit")
        await scripted(server.url, ids["ben"])
        await person.ask(f"/approvals {ids['ben']}", r"description:.*arguments:.*\"to\":.*ben")
        await person.ask(f"/approve {ids['ann']}", r"send accepted; task \S{8}.*sent to ann")
        await person.ask(
            f"/approve {ids['ann']}", r"error approving: already accepted by user:alice"
        )
        person.type(f"/edit {ids['ben'][:6]}")
        await person.see(r'/edit \w{8} \{"to": "ben"\}')
        person.press("\x7f" * 5 + 'bob", "copies": "many"}\r')
        await person.see(r"error editing: [^\n]*copies[^H]*mail>")
        person.type(f'/edit {ids["ben"][:6]} {{"to": "bob", "copies": 2}}')
        await person.see(r"send edited; .*copies: null → 2")
        await person.see(r"sent to ann \| SUCCESS: sent to bob.*task \S{8} completed.*mail>")
        await person.ask("/new send", r"task \S{8} paused")
        ids = await calls()
        await person.ask("/approve", r"error approving: several open calls: \w+, \w+")
        await person.ask(f"/answer {ids['ann']} she's told, isn't she?", r"send responded;")
        await person.ask(f"/no {ids['ben'][:9]}", r"send ignored; .*ignored the call of 'send'")
        await person.ask("/approvals", r"nothing waits for you")
        await person.ask("/approve", r"error approving: nothing waits for you")
        await person.ask("/new send", r"task \S{8} paused")
        await person.ask(f"/answer {(await calls())['ann']} no", r"send responded;")
        await person.ask("/approve", r"send accepted; .*no \| SUCCESS: sent to ben")
        await person.ask("/approvals --all", r"ignored by user:alice.*accepted by user:alice")
        assert [each["to"] for each in SENT] == ["ann", "bob", "ben"]
        await person.ask("/new send_admin", r"task \S{8} paused")
        ids = await calls()
        await person.ask("/approvals", r"supervisor waits for admin · /approve")
        await person.ask(f"/approvals {ids['ann']}", r"approvers: admin.*description:")
        await person.ask(f"/ok {ids['ann']}", r"error approving: this call is approved by others")
        person.press("/ok " + ids["ben"][:5] + "\t")
        await person.see(ids["ben"][-12:])


async def test_it_is_told_how_to_start_a_server_where_none_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "http://127.0.0.1:1"
    assert await asyncio.to_thread(main, ["client", url, "ping"]) == 4
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and told.endswith("; `mail server` starts a server\n")
    async with terminal(tmp_path, arguments(url), size=(120, 40)) as person:
        await person.see("mail>")
        person.type("hello")
        await person.see(rf"cannot connect to {url}; `mail server` starts a server")


async def scripted(url: str, approval_id: str) -> None:
    """Look at a call, and make another task pause, as a script does."""

    async def run(*words: str) -> Done:
        return await terminals.run(Path.cwd(), *arguments(url), *words)

    code, out, _ = await run("/approvals", approval_id)
    assert code == 0 and '    "to":\n      ben\n' in out
    assert f"mail client {url} approve {approval_id} | edit {approval_id} JSON" in out
    code, _, err = await run("message", "send")
    assert code == 3 and "breakpoint_tool_call" not in err
    held, *_ = re.findall(rf"continue with: mail client {url} approve (\S+)", err)
    _, out, _ = await run("reject", held)
    [task_id] = re.findall(r"send ignored; task ([0-9a-f-]{36}) ", out)
    assert (await run("task-delete", task_id, "--cancel"))[0] == 0


@pytest.mark.parametrize(
    "terms", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["colours", "none", "dumb"]
)
async def test_hostile_text_does_nothing_to_a_narrow_terminal(
    tmp_path: Path, place: Restarted, terms: dict[str, str]
) -> None:
    async with MAILClient(place.url, TOKENS["alice"]) as client:
        await client.post_message(EVIL, task_id=f"bad\u202e{'x' * 50}")
        await client.post_message(f"consult me {EVIL}", task_id="calls", subject=EVIL)
    async with terminal(tmp_path, arguments(place.url), size=(40, 30), **terms) as person:
        await person.see("mail>")
        person.press("\x1b[31mred\x1b[<0;1;1M\r")  # it looks like a mouse
        await person.see(r"You said: red.*mail>")
        await person.ask("/tasks", r"calls +paused")
        await person.ask("/watch bad", r"You said: .*u202e.*completed")
        await person.ask("/watch calls", r"waits for you.*task calls paused")
        await person.ask("/approvals", r"send_interrupt")
        if "TERM" not in terms:
            person.press("/watch \t\t")
            await person.see("calls")
            person.press("\x03")
            await person.see("mail>")
        harmless(person, **terms)
        assert "\\u001b]52;c;ZXZpbA==" in "".join(person.lines)


def harmless(person: Terminal, **terms: str) -> None:
    """Check that nothing was sent to a terminal which it does more with than to show text."""
    raw = person.raw
    assert b"\x1b]" not in raw
    assert b"\x1b[2J" not in raw
    assert b"\x9b" not in raw.replace("…".encode(), b"")
    assert "\u202e" not in raw.decode()
    if "NO_COLOR" in terms:
        assert re.findall(rb"\x1b\[[0-9;]*[34][0-7]m", raw) == []
    if terms.get("TERM") == "dumb":
        assert b"\x1b" not in re.sub(rb"\x1b\[\?(12l|25h)", b"", raw)  # prompt_toolkit's cursor
