"""The primers' calls of ``start_server``, each in a process of its own.

::

    python -m tests.documents.served PRIMER PORT UI_PORT

serves until it is told to stop. Address and ports are ours, so that no test is reached from
outside or meets another one, and the model follows a script; the rest is the primers'.
"""

import asyncio
import os
import signal
import sys
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from scripts.ports import free_port
from tests.documents.primer_swarms import minimal_swarm
from tests.server.kit import know

__all__ = ["Served", "serving_process"]

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
SCRIPTED = "scripted/tests.documents.primer_swarms:SCRIPT"
TOKEN = "mail_documents-test-00000000000000"


def agents_primer(port: int, ui_port: int) -> None:
    """Serve as AGENTS_MAIL_PRIMER.md does."""
    swarm_template = minimal_swarm(SCRIPTED)
    swarm_template.start_server(
        port=port,
        host=HOST,
        launch_ui=True,
        ui_port=ui_port,
    )


def claude_primer(port: int, ui_port: int) -> None:
    """Serve as CLAUDE_MAIL_PRIMER.md does."""
    template = minimal_swarm(SCRIPTED)
    template.start_server(
        port=port,
        host=HOST,
        launch_ui=True,
        ui_port=ui_port,
        open_browser=True,
    )


def without_ui(port: int, ui_port: int) -> None:
    """Serve without a user interface."""
    minimal_swarm(SCRIPTED).start_server(port=port, host=HOST, launch_ui=False, ui_port=ui_port)


_WAYS = {way.__name__: way for way in (agents_primer, claude_primer, without_ui)}


@dataclass
class Served:
    """A running server: a client of it, and (at the end) what it printed and logged."""

    client: httpx.AsyncClient
    printed: list[str]
    logged: str = ""


@asynccontextmanager
async def serving_process(way: str, folder: Path) -> AsyncIterator[Served]:
    """Serve from a folder until the context is left; the process must then end in good order."""
    await know(f"sqlite:///{folder / 'mail.db'}", (TOKEN, "user", "alice"))
    port, ui_port = free_port(), free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.documents.served", way, str(port), str(ui_port)),
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
            "DATABASE_URL": f"sqlite:///{folder / 'mail.db'}",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        started = await _until_it_listens(process)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(
            base_url=f"http://{HOST}:{port}", headers=headers, timeout=30
        ) as client:
            served = Served(client, [])
            assert process.stdout
            opened = b"" if way == "without_ui" else await process.stdout.readline()
            yield served
        process.send_signal(signal.SIGTERM)
        out, err = await process.communicate()
        served.printed, served.logged = (opened + out).decode().splitlines(), started + err.decode()
        assert process.returncode == 0, served.logged
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def _until_it_listens(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    logged = ""
    while "listening on" not in logged:
        line = await process.stderr.readline()
        assert line, logged
        logged += line.decode()
    return logged


def _tell(url: str, *options: object) -> bool:
    sys.stdout.write(f"browser {url}\n")
    sys.stdout.flush()
    return True


def main() -> None:
    """Serve as the command line says."""
    webbrowser.open = _tell
    _WAYS[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.write("returned\n")


if __name__ == "__main__":
    main()
