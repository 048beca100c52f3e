"""What the demonstrations share: a real ``mail server`` in a process of its own, and its tokens.

Not a script: the others import it.
"""

import asyncio
import json
import os
import signal
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mail.client import MAILClient
from mail.config import ClientConfig
from mail.errors import ClientHTTPError

ROOT = Path(__file__).resolve().parents[1]
SWARMS = ROOT / "swarms.json"
START_LIMIT = 90.0
STOP_LIMIT = 30.0
WIDTH = 100
FOREIGN = ("AUTH_ENDPOINT", "TOKEN_INFO_ENDPOINT", "DATABASE_URL", "MAIL_CONFIG_PATH", "MAIL_LLM")
PROXY = "litellm_proxy/"
MAIL = (sys.executable, "-m", "mail.cli")


class DemoFailedError(Exception):
    """The demonstration did not go as it should; the text says what went wrong."""


@dataclass(frozen=True)
class Place:
    """A folder for one server, and the port that it gets."""

    folder: Path
    port: int
    swarm: str = "example-no-proxy"
    source: Path = SWARMS
    debug: bool = False
    federated: bool = False

    @property
    def url(self) -> str:
        """The server's URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def store(self) -> str:
        """The URL of the server's database."""
        return f"sqlite:///{self.folder / 'mail.db'}"

    @property
    def log(self) -> Path:
        """What the server writes."""
        return self.folder / "server.log"

    def config(self) -> Path:
        """Return the project's configuration, or a copy for servers that meet.

        The copy names the swarm, for commands beside the server.
        """
        if not self.federated:
            return ROOT / "mail.toml"
        copy = self.folder / "mail.toml"
        settings = (ROOT / "mail.toml").read_text(encoding="utf-8")
        named = settings.replace('name = "example-no-proxy"', f'name = "{self.swarm}"')
        copy.write_text(f"{named}\n[server.teams]\nenabled = true\n", encoding="utf-8")
        return copy


# --- what is seen -----------------------------------------------------------------------------


def headline(text: str) -> None:
    """Print the title of a step."""
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)


def short(value: object, width: int = WIDTH) -> str:
    """Return a value on one line of limited length."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = "".join(sign if sign.isprintable() else " " for sign in text)
    return textwrap.shorten(text, width, placeholder=" …")


# --- what runs --------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """Return the environment without settings that would lead a server elsewhere."""
    return {name: value for name, value in os.environ.items() if name not in FOREIGN}


def with_model(model: str | None, folder: Path) -> Path:
    """Return the project's swarms file, or a copy in which every agent asks a model."""
    if not model:
        return SWARMS
    swarms = json.loads(SWARMS.read_text(encoding="utf-8"))
    for swarm in swarms:
        for agent in swarm["agents"]:
            params = agent.setdefault("agent_params", {})
            params |= {"llm": model, "use_proxy": model.startswith(PROXY)}
    copy = folder / "swarms.json"
    copy.write_text(json.dumps(swarms, indent=2), encoding="utf-8")
    return copy


@asynccontextmanager
async def server(place: Place) -> AsyncIterator[None]:
    """Run ``mail server`` in a folder; stop it with SIGTERM and see that it stopped well."""
    flags = {
        "--config": place.config(),
        "--host": "127.0.0.1",
        "--port": place.port,
        "--swarm-name": place.swarm,
        "--swarm-source": place.source,
        "--swarm-registry": place.folder / "registry.json",
        "--store": place.store,
        "--print-llm-streams": "false",
    }
    arguments = [str(part) for flag in flags.items() for part in flag]
    arguments += ["--debug"] if place.debug else []
    with place.log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(*MAIL, "server", *arguments),
            cwd=place.folder, env=environment(), stdout=output, stderr=output,
        )  # fmt: skip
        try:
            await until_healthy(process, place)
            yield
            headline("Stopping the server (SIGTERM)")
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(STOP_LIMIT):
                code = await process.wait()
            if code != 0:
                raise DemoFailedError(f"the server stopped with exit code {code}")
            print("stopped with exit code 0")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def until_healthy(process: asyncio.subprocess.Process, place: Place) -> None:
    """Wait until the server answers ``GET /health``."""
    deadline = time.monotonic() + START_LIMIT
    async with MAILClient(place.url, config=ClientConfig(timeout=5.0, verbose=False)) as client:
        while process.returncode is None and time.monotonic() < deadline:
            try:
                await client.get_health()
            except ClientHTTPError:
                await asyncio.sleep(0.1)
            else:
                return
    raise DemoFailedError("the server did not start")


async def make_token(place: Place, role: str = "user", name: str = "newcomer") -> str:
    """Make an access token with ``mail token create``, beside the running server.

    The role of a participant is ``participant`` here.
    """
    kind = ["agent", "--participant"] if role == "participant" else [role]
    process = await asyncio.create_subprocess_exec(
        *(*MAIL, "token", "create", "--role", *kind, "--id", name, "--store", place.store),
        cwd=place.folder, env=environment(), stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, notes = await process.communicate()
    if process.returncode != 0:
        raise DemoFailedError(f"mail token create: {notes.decode(errors='replace').strip()}")
    return output.decode().strip()


async def run_in_folder(work: Callable[[Path], Awaitable[None]], seconds: float) -> int:
    """Do the work in a folder that is gone afterwards, within a time limit.

    Returns:
        The exit code; when it is 1, the reason and the end of the server's log are printed.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    with TemporaryDirectory(prefix="mail-demo-") as name:
        try:
            async with asyncio.timeout(seconds):
                await work(Path(name))
        except (DemoFailedError, TimeoutError, RuntimeError, ValueError, OSError) as error:
            print(f"\nThe demo failed: {str(error) or 'it took too long'}", file=sys.stderr)
            tell_logs(Path(name))
            return 1
    return 0


def tell_logs(folder: Path) -> None:
    """Print the end of what each server in a folder wrote."""
    for log in sorted(folder.rglob("server.log")):
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:]
        print("Last lines of the server's log:", *tail, sep="\n  ", file=sys.stderr)
