"""``mail server`` as a process, with the other commands and the client beside it."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import pytest

from mail.client import MAILClient
from mail.config import ClientConfig
from mail.errors import ClientHTTPError
from scripts.ports import free_port

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
QUESTION = "What will the weather be in Paris tomorrow, and what is 17 * 23?"
MAIL = (sys.executable, "-m", "mail.cli")


@dataclass
class Place:
    """A folder with a configuration, and a server in it."""

    folder: Path
    port: int
    flags: tuple[str, ...] = ()
    process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """The server's URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What the server wrote so far."""
        return (self.folder / "server.log").read_text(encoding="utf-8")

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run another ``mail`` command here."""
        return subprocess.run(
            [*MAIL, *arguments],
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def token(self, name: str) -> str:
        """Make a token for a user."""
        done = self.run("token", "create", "--role", "user", "--id", name)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @cached_property
    def admin_token(self) -> str:
        """An administrator's token."""
        done = self.run("token", "create", "--role", "admin", "--id", "root")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def only_task(self) -> dict[str, Any]:
        """Return the one task in the database, without asking the server."""
        (listed,) = json.loads(self.run("tasks", "list", "--json").stdout)
        shown = self.run("tasks", "show", listed["task_id"], "--json").stdout
        return dict(json.loads(shown))

    async def start(self) -> None:
        """Start the server and wait until it answers."""
        with (self.folder / "server.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(*MAIL, "server", *self.flags),
                cwd=self.folder,
                env=environment(),
                stdout=log,
                stderr=log,
            )
        async with asyncio.timeout(90), MAILClient(self.url, config=quick()) as client:
            while True:
                assert self.process.returncode is None, self.log
                try:
                    await client.get_health()
                except ClientHTTPError:
                    await asyncio.sleep(0.1)
                else:
                    return

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send the server a signal and return its exit code."""
        assert self.process is not None
        self.process.send_signal(how)
        async with asyncio.timeout(60):
            return await self.process.wait()


def environment() -> dict[str, str]:
    dropped = ("DATABASE_URL", "MAIL_CONFIG_PATH", "AUTH_ENDPOINT", "TOKEN_INFO_ENDPOINT")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return kept | {"PYTHONPATH": str(ROOT / "src")}


def quick() -> ClientConfig:
    return ClientConfig(timeout=30.0, verbose=False)


@asynccontextmanager
async def serving(
    folder: Path, swarms: Path = ROOT / "swarms.json", flags: Sequence[str] = ()
) -> AsyncIterator[Place]:
    place = Place(folder, free_port(), tuple(flags))
    (folder / "mail.toml").write_text(
        f"[server]\nhost = '127.0.0.1'\nport = {place.port}\n"
        f"[server.swarm]\nsource = '{swarms}'\n"
        "[server.settings]\nprint_llm_streams = false\n"
        "[server.store]\nurl = 'sqlite:///mail.db'\n"
    )
    await place.start()
    try:
        yield place
    finally:
        if place.process is not None and place.process.returncode is None:
            place.process.kill()
            await place.process.wait()


async def test_a_swarm_is_asked_watched_and_continued(tmp_path: Path) -> None:
    async with serving(tmp_path) as place:
        assert place.run("ping", place.url).stdout == "✓ example-no-proxy is healthy\n"
        token = place.token("alice")
        async with MAILClient(place.url, token, config=quick()) as client:
            assert (await client.get_whoami())["id"] == "alice"
            assert (await client.ping())["swarm"]["name"] == "example-no-proxy"
            assert (await client.get_status())["swarm"]["status"] == "ready"
            await check_conversation(client)
            await check_replay(client)
            with pytest.raises(ClientHTTPError) as caught:
                await client.post_message("")
            assert caught.value.status == 400
        assert await place.stop() == 0
        assert token not in place.log
        assert "Traceback" not in place.log


async def check_conversation(client: MAILClient) -> None:
    stream = await client.post_message_stream(QUESTION, task_id="my task/1")
    events = [(event.event, event.id, json.loads(event.data)) async for event in stream]
    numbers = [int(number) for _, number, _ in events if number is not None]
    assert numbers == sorted(set(numbers))
    assert events[-1][0] == "task_complete"
    assert "391" in events[-1][2]["response"]
    tasks = await client.get_tasks()
    assert tasks["my task/1"]["completed"]
    logged = (await client.get_task("my task/1"))["events"]
    assert [event["id"] for event in logged] == [str(number) for number in numbers]
    assert tasks["my task/1"]["event_count"] == len(logged)
    more = await client.post_message("What is 6 * 7?", task_id="my task/1", show_events=True)
    assert "42" in more["response"]
    assert more["events"]


async def check_replay(client: MAILClient) -> None:
    whole = [event.id async for event in await client.get_task_events("my task/1")]
    rest = [event.id async for event in await client.get_task_events("my task/1", 3)]
    assert whole[0] == "1"
    assert rest == whole[3:]


async def test_of_a_log_over_its_limit_the_oldest_files_are_deleted(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    with (logs / "mail_2020-01-01.log").open("wb") as old:
        old.truncate(2**30)  # a hole, which takes no room
    (logs / "mail_2020-01-02.log").write_text("kept\n")
    async with serving(tmp_path):
        names = sorted(path.name for path in logs.iterdir())
    assert names[0] == "mail_2020-01-02.log"
    assert len(names) >= 2


async def test_tokens_work_at_once_and_keep_callers_apart(tmp_path: Path) -> None:
    async with serving(tmp_path) as place:
        with pytest.raises(ClientHTTPError) as caught:
            async with MAILClient(place.url, "mail_nobody", config=quick()) as client:
                await client.get_whoami()
        assert caught.value.status == 401
        async with MAILClient(place.url, place.token("alice"), config=quick()) as alice:
            await alice.post_message("What is 6 * 7?", task_id="hers")
        async with MAILClient(place.url, place.token("bob"), config=quick()) as bob:
            assert await bob.get_tasks() == {}
            with pytest.raises(ClientHTTPError) as caught:
                await bob.get_task("hers")
            assert caught.value.status == 404


async def test_a_stream_outlives_a_killed_server(tmp_path: Path) -> None:
    write_slow_swarm(tmp_path)
    async with serving(tmp_path, tmp_path / "slow.json") as place:
        token = place.token("alice")
        async with MAILClient(place.url, token, config=quick()) as client:
            stream = await client.post_message_stream("Take your time")
            events = [await anext(stream)]
            assert await place.stop(signal.SIGKILL) != 0
            restart = asyncio.create_task(place.start())
            events += [event async for event in stream]
            await restart
            assert json.loads(events[-1].data)["response"] == "well thought out"
            (task_id,) = await client.get_tasks()
            logged = (await client.get_task(task_id))["events"]
            stored = [(event["event"], event["id"]) for event in logged]
            assert [(event.event, event.id) for event in events if event.id] == stored
            assert "turn_restarted" in dict(stored)


def test_a_server_that_cannot_start_says_why_in_one_line(tmp_path: Path) -> None:
    place = Place(tmp_path, 0)
    write_slow_swarm(tmp_path)  # whose script is not in the path of the modules
    (tmp_path / "slowness.py").unlink()
    unbuilt = place.run("server", "--port", "0", "--swarm-source", "slow.json")
    assert unbuilt.returncode == 2
    problem = "mail: slow.json: agent 'supervisor': 'scripted/slowness:SCRIPT' does"
    assert unbuilt.stderr.startswith(problem)
    assert unbuilt.stderr.count("\n") == 1
    assert not (tmp_path / "mail.db").exists()


async def test_scripted_agents_go_on_after_a_crash_without_their_caller(tmp_path: Path) -> None:
    write_slow_swarm(tmp_path, use_proxy=True)
    async with serving(tmp_path, tmp_path / "slow.json") as place:
        async with (
            MAILClient(place.url, place.token("alice"), config=quick()) as client,
            await client.post_message_stream("Take your time") as stream,
        ):
            await anext(stream)
        assert await place.stop(signal.SIGKILL) != 0
        await place.start()
        assert "proxy" not in place.log.lower()
        async with asyncio.timeout(60):
            while (task := place.only_task())["status"] != "completed":
                await asyncio.sleep(0.2)
        assert task["events"][-1]["event"] == "task_complete"


async def test_the_log_of_a_start_says_which_model_cannot_be_asked(tmp_path: Path) -> None:
    write_slow_swarm(tmp_path, llm="openai/gpt-5-mini")
    async with serving(tmp_path, tmp_path / "slow.json") as place, asyncio.timeout(60):
        while "of supervisor cannot be used: OPENAI_API_KEY is not set" not in place.log:
            await asyncio.sleep(0.1)


WRONG = [
    (["--config", "none.toml"], 2, "none.toml', which is not a file; correct the path"),
    (["--store", "mysql://u:hunter2@h/d"], 2, "--store: a store URL cannot begin with 'mysql:'"),
    (
        ["--store", "mail.db"],
        2,
        "mail: --store: a store URL begins with a scheme; write sqlite:///mail.db",
    ),
    (["--swarm-source", "none.json"], 2, "mail: --swarm-source: swarms file 'none.json' not"),
    (
        ["--config", "source.toml"],
        2,
        "source.toml: [server.swarm] 'source': swarms file 'gone.json'",
    ),
    (["--config", "store.toml"], 2, "store.toml: [server.store] 'url': a store URL cannot begin"),
    (
        ["--config", "key.toml"],
        2,
        "mail: [server.federation] signing_key_file names slow.json/key.pem, which cannot be made",
    ),
    (["--swarm-name", "suport"], 2, "Did you mean 'support'?"),
    (
        ["--host", "192.0.2.1"],
        1,
        "mail: --host: '192.0.2.1' is not an address of this machine; use",
    ),
    (["--swarm-source", "slow.json"], 2, "mail: slow.json: entrypoint 'boss' does not match any"),
    (["--swarm-source", "slow.json", "--reload"], 2, "The agents are 'supervisor'."),
]


@pytest.mark.parametrize(("flags", "code", "words"), WRONG)
def test_a_mistake_is_one_line_before_anything_else(
    tmp_path: Path, flags: list[str], code: int, words: str
) -> None:
    (tmp_path / "source.toml").write_text("[server.swarm]\nsource = 'gone.json'\n")
    (tmp_path / "store.toml").write_text("[server.store]\nurl = 'mysql://u:hunter2@h/d'\n")
    (tmp_path / "key.toml").write_text(
        "[server.federation]\nsigning_key_file = 'slow.json/key.pem'\n"
        "[server.swarm]\nname = 'example-no-proxy'\n"
    )
    write_slow_swarm(tmp_path, entrypoint="boss")
    check_refused(Place(tmp_path, 0).run("server", "--port", "0", *flags), code, words)
    assert not (tmp_path / "mail.db").exists()


@pytest.mark.parametrize("flags", [[], ["--reload"]])
def test_a_port_in_use_is_one_line_that_says_which_key_to_change(
    tmp_path: Path, flags: list[str]
) -> None:
    place = Place(tmp_path, 0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        words = f"127.0.0.1:{port} is in use, perhaps by a running server; stop it, or use another"
        (tmp_path / "mail.toml").write_text("[server]\nhost = '127.0.0.1'\n")
        check_refused(place.run("server", "--port", str(port), *flags), 1, f"--port: {words}")
        (tmp_path / "mail.toml").write_text(f"[server]\nhost = '127.0.0.1'\nport = {port}\n")
        check_refused(place.run("server", *flags), 1, f"mail.toml: [server] 'port': {words}")
    assert not (tmp_path / "mail.db").exists()


def check_refused(done: "subprocess.CompletedProcess[str]", code: int, words: str) -> None:
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("mail: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert "hunter2" not in done.stderr


async def test_a_reloading_server_writes_lines_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "changed.py").write_text("")
    swarms = shutil.copy(ROOT / "swarms.json", tmp_path)
    async with serving(tmp_path, Path(swarms), flags=("--reload",)) as place:
        async with asyncio.timeout(60):  # the line comes after the answer
            while not (lines := [ln for ln in place.log.splitlines() if "GET /health" in ln]):
                await asyncio.sleep(0.05)
        records = [json.loads(line) for line in lines]
        assert {record["logger"] for record in records} == {"mail.server.access"}
        assert all(record["request_id"] for record in records)
        (tmp_path / "swarms.json").write_text("[]")
        told = "not serving until a file changes: "
        # A change may come before the watcher looks, or end the server that was to write the line.
        for seconds in (2, 6, 20, 60):
            (tmp_path / "changed.py").write_text("")
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while told not in place.log:
                        await asyncio.sleep(0.1)
                break  # else it is tried again
        assert told in place.log
        assert "Traceback" not in place.log
        await place.stop()


EDITS = [
    ("swarms/slow.json", "A slow thinker.", "A deep thinker.", "GET /", "A deep thinker."),
    ("home/mail.toml", "[server.swarm]", "docs = false\n[server.swarm]", "GET /docs", "404"),
    ("swarms/slowness.py", "well thought out", "thought again", "POST /message", "thought again"),
]


@pytest.mark.parametrize(("file", "old", "new", "request_line", "expected"), EDITS)
async def test_a_reloading_server_follows_its_swarms_file_its_settings_and_their_code(
    tmp_path: Path, file: str, old: str, new: str, request_line: str, expected: str
) -> None:
    for name in ("home", "swarms"):
        (tmp_path / name).mkdir()
    write_slow_swarm(tmp_path / "swarms")
    edited, swarms = tmp_path / file, tmp_path / "swarms" / "slow.json"
    async with serving(tmp_path / "home", swarms, flags=("--reload", "--debug")) as place:
        assert expected not in ask(place, request_line)
        text = edited.read_text().replace(old, new)
        async with asyncio.timeout(90):
            while expected not in ask(place, request_line):
                # A change may come before the watcher looks for the first time: it is made again.
                if "Reloading" not in place.log:
                    edited.write_text(text)
                await asyncio.sleep(0.2)
        assert f"{edited.name}'. Reloading" in place.log
        assert await place.stop() == 0


def ask(place: Place, request_line: str) -> str:
    """Return status and body of a request by an administrator; no text while nobody answers."""
    method, path = request_line.split()
    headers = {"Authorization": f"Bearer {place.admin_token}"}
    body = {"body": "What do you think?"} if method == "POST" else None
    with suppress(httpx.HTTPError), httpx.Client(base_url=place.url, timeout=30) as client:
        answer = client.request(method, path, headers=headers, json=body)
        return f"{answer.status_code} {answer.text}"
    return ""


def write_slow_swarm(folder: Path, entrypoint: str = "supervisor", **params: object) -> None:
    """Write a swarm of one agent that thinks for two seconds before it answers."""
    (folder / "slowness.py").write_text(
        "from mail.llm.script import call, otherwise, think\n"
        "SCRIPT = [otherwise(think('a b c d e f g h', delay=0.25),\n"
        "    call('task_complete', finish_message='well thought out'))]\n"
    )
    agent = {
        "name": "supervisor",
        "factory": "python::mail.factories.supervisor:LiteLLMSupervisorFunction",
        "comm_targets": [],
        "enable_entrypoint": True,
        "can_complete_tasks": True,
        "agent_params": {
            "llm": "scripted/slowness:SCRIPT",
            "system": "Think.",
            "use_proxy": False,
            **params,
        },
    }
    swarm = {
        "name": "example-no-proxy",
        "description": "A slow thinker.",
        "version": "1.3.6",
        "entrypoint": entrypoint,
        "enable_interswarm": False,
        "agents": [agent],
        "actions": [],
    }
    (folder / "slow.json").write_text(json.dumps([swarm]))


def test_the_demo_answers_and_exits_well(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/demo.py")],
        cwd=tmp_path,
        env={**environment(), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for part in ("supervisor → weather", "supervisor → math", "391", "GET /tasks", "code 0"):
        assert part in done.stdout
