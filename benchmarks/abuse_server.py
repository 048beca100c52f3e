"""The server under attack: ``mail server`` as it is shipped, over a swarm that answers at once.

What a message says decides: ``echo …`` is answered with all of it, ``slow …`` after two seconds,
``pause SIZE`` calls a
breakpoint tool with so many characters of arguments, ``fail …`` calls a tool that fails with all of
it, anything else has a short answer.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

import mail
from benchmarks.serving import serving
from benchmarks.swarm import reply
from mail.core.agents import AgentFunction, AgentOutput, ToolChoice
from tests.support.proxies import behind

__all__ = ["AGENTS", "Attacked", "attacked", "crowded_definition", "definition"]

_ROOT = Path(__file__).parents[1]
_ROLES = {"attacker": "user", "neighbour": "user", "operator": "admin"}
_SLOW_SECONDS = 2.0
AGENTS = 400
"""Of the large swarm that an operator loads."""


def answerer(**_: Any) -> AgentFunction:
    """Return the agent's function."""

    async def work(messages: list[dict[str, Any]], choice: ToolChoice) -> AgentOutput:
        text = str(messages[-1]["content"])
        if paused := re.search(r"pause (\d+)", text[:4096]):
            return reply("decide", text=os.urandom(int(paused[1]) // 2).hex())
        if (start := text.find("<body>fail ", 0, 4096)) >= 0:
            return reply("look_up", text=text[start + 11 : text.rindex("</body>")])
        if "<body>slow " in text[:4096]:
            await asyncio.sleep(_SLOW_SECONDS)
        start = text.find("echo ", 0, 4096)
        answer = f"Read {len(text)}." if start < 0 else text[start : text.rindex("</body>")]
        return reply("task_complete", finish_message=answer)

    return work


async def decide(arguments: dict[str, Any]) -> str:
    """Never run: it is a breakpoint."""
    raise NotImplementedError


async def look_up(arguments: dict[str, Any]) -> str:
    """Fail as a look-up in a dictionary does."""
    raise KeyError(arguments["text"])


def definition() -> dict[str, Any]:
    """Return the swarm as in a swarms file."""
    here = "python::benchmarks.abuse_server"
    text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    decision = {"name": "decide", "description": "Let a person decide.", "parameters": text}
    looking = {"name": "look_up", "description": "Look a word up.", "parameters": text}
    agent = {
        "name": "supervisor",
        "factory": f"{here}:answerer",
        "comm_targets": [],
        "actions": ["decide", "look_up"],
        "agent_params": {},
        "enable_entrypoint": True,
        "can_complete_tasks": True,
    }
    return {
        "name": "abuse",
        "version": "1.0.0",
        "entrypoint": "supervisor",
        "agents": [agent],
        "actions": [
            {**decision, "function": f"{here}:decide"},
            {**looking, "function": f"{here}:look_up"},
        ],
        "breakpoint_tools": ["decide"],
    }


def crowded_definition(agents: int = AGENTS, targets: int = AGENTS) -> dict[str, Any]:
    """Return a swarm of agents, each of whom may write to so many, as it may come over HTTP."""
    names = [f"agent-{number}" for number in range(agents)]
    shared = {
        "factory": "python::mail.factories:LiteLLMAgentFunction",
        "agent_params": {"llm": "scripted/mail.examples.scripts:MATH", "system": "Help."},
    }
    others = [(names[at + 1 :] + names[:at])[:targets] for at in range(agents)]
    workers = [
        {**shared, "name": name, "comm_targets": others[at]}
        for at, name in enumerate(names[1:], start=1)
    ]
    lead = {
        **shared,
        "name": names[0],
        "factory": "python::mail.factories:LiteLLMSupervisorFunction",
        "comm_targets": others[0],
        "enable_entrypoint": True,
        "can_complete_tasks": True,
    }
    return {
        "name": "abuse",
        "version": "1.0.0",
        "entrypoint": names[0],
        "agents": [lead, *workers],
        "actions": [],
    }


@dataclass(frozen=True)
class Attacked:
    """A running server, and what it takes of the machine."""

    url: str
    pid: int
    folder: Path
    tokens: dict[str, str]

    def resident(self) -> float:
        """MB that it has in memory."""
        return float(psutil.Process(self.pid).memory_info().rss) / 1e6

    def peak(self) -> float:
        """MB that it had in memory at most since `forget_peak`."""
        status = Path(f"/proc/{self.pid}/status").read_text("ascii")
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024 / 1e6

    def forget_peak(self) -> None:
        """Begin anew."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", "ascii")

    def stored(self) -> float:
        """MB of its database and its logs."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file()) / 1e6


@asynccontextmanager
async def attacked(source: Path | None = None, proxy: str = "") -> AsyncIterator[Attacked]:
    """Run the server, of these sources or of others, in a folder of its own.

    With ``proxy``, nginx or Caddy stands in front of it, as in ``deploy/``.
    """
    source = source or Path(mail.__file__).parents[1]
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environ = {**kept, "PYTHONPATH": os.pathsep.join((str(source.resolve()), str(_ROOT)))}
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "server"
        folder.mkdir()
        (folder / "swarms.json").write_text(json.dumps([definition()]), "utf-8")
        tokens = {name: _token(folder, environ, role, name) for name, role in _ROLES.items()}
        options = ("-H", "127.0.0.1", "-n", "abuse", "-s", "swarms.json", "-p")
        with (Path(temporary) / "printed").open("wb") as output:
            async with serving(
                "mail.cli", "server", *options, folder=folder, environ=environ, output=output
            ) as (url, pid):
                server = url.removeprefix("http://")
                with behind(proxy, server) if proxy else nullcontext(url) as public:
                    yield Attacked(public, pid, folder, tokens)


def _token(folder: Path, environ: dict[str, str], role: str, name: str) -> str:
    command = [sys.executable, "-m", "mail.cli", "token", "create", "--role", role, "--id", name]
    made = subprocess.run(
        [*command, "--json"], cwd=folder, env=environ, capture_output=True, text=True
    )
    if made.returncode:
        raise RuntimeError(f"these sources do not run: {made.stderr}")
    return str(json.loads(made.stdout)["token"])
