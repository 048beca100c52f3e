"""`make demo`: a swarm of agents answers a question over HTTP, before your eyes.

Everything is real: a server process on a free loopback port, a database, a token, a client that
reads the event stream. Only the language model is scripted, so that it works offline and always
the same. With ``MAIL_DEMO_LLM=<litellm model>`` (and the provider's key in the environment) that
model thinks instead; ``litellm_proxy/<model>`` is reached through the LiteLLM proxy at
``LITELLM_PROXY_API_BASE``, in the name of the demo's user. The exit code is 0 only if the swarm
answered and the server stopped well.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mail.client import MAILClient
from mail.config import ClientConfig
from mail.errors import ClientHTTPError

ROOT = Path(__file__).resolve().parents[1]
QUESTION = "What will the weather be in Paris tomorrow, and what is 17 * 23?"
EXPECTED = "391"
TIME_LIMIT = 300.0
START_LIMIT = 90.0
STOP_LIMIT = 30.0
WIDTH = 100
FOREIGN = ("AUTH_ENDPOINT", "TOKEN_INFO_ENDPOINT", "DATABASE_URL", "MAIL_CONFIG_PATH")
PROXY = "litellm_proxy/"
MAIL = (sys.executable, "-m", "mail.cli")


class DemoFailedError(Exception):
    """The demo did not go as it should; the text says what went wrong."""


# --- what is seen -----------------------------------------------------------------------------


def headline(text: str) -> None:
    """Print the title of a step."""
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)


def short(value: object, width: int = WIDTH) -> str:
    """Return a value on one line of limited length."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = "".join(sign if sign.isprintable() else " " for sign in text)
    return textwrap.shorten(text, width, placeholder=" …")


def tell_message(extra: Mapping[str, Any]) -> list[str]:
    """Tell who wrote to whom, and what."""
    message = extra["full_message"]["message"]
    if message["subject"] == "::action_complete::":
        return []  # the prompt that makes the agent go on; the result itself is shown already
    recipients = message.get("recipients") or [message["recipient"]]
    names = ", ".join(recipient["address"] for recipient in recipients)
    first = f"{message['sender']['address']} → {names}   [{short(message['subject'], 60)}]"
    return [first, f"    {short(message['body'])}"]


def tell_tool_call(extra: Mapping[str, Any]) -> list[str]:
    """Tell which tool an agent uses; writing a message is shown by the message itself."""
    name = extra["tool_name"]
    if name.startswith("send_") or name == "task_complete":
        return []
    agent = extra.get("caller", "agent")
    return [f"{agent} uses {name} {short(extra.get('tool_args', {}), 70)}"]


def tell_result(extra: Mapping[str, Any]) -> list[str]:
    """Tell what an action returned."""
    return [f"{extra['tool_name']} returned: {short(extra.get('result', ''))}"]


TELL: dict[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "new_message": tell_message,
    "tool_call": tell_tool_call,
    "action_complete": tell_result,
    "action_error": tell_result,
}
"""Kind of event to the lines that tell it; other kinds are not shown."""


async def show_timeline(client: MAILClient) -> str:
    """Post the question, print the events as they arrive, and return the answer."""
    began = time.monotonic()
    async with await client.post_message_stream(QUESTION, subject="A question") as stream:
        async for event in stream:
            data = json.loads(event.data or "{}")
            tell = TELL.get(event.event or "")
            stamp = f"{time.monotonic() - began:6.2f}s "
            for line in tell(data["extra_data"]) if tell else ():
                print(stamp + line, flush=True)
                stamp = " " * len(stamp)
            if event.event == "task_complete":
                print(f"{stamp}task complete after {event.id} events", flush=True)
                return str(data["response"])
            if event.event == "task_error":
                raise DemoFailedError(f"the task failed: {data.get('response')}")
    raise DemoFailedError("the stream ended without an answer")


async def show_tasks(client: MAILClient) -> None:
    """Print what the server keeps about the caller's tasks."""
    for task_id, task in (await client.get_tasks()).items():
        state = task.get("status", "completed" if task["completed"] else "running")
        print(f"{task_id}  {state}  owner {task['task_owner']}  {len(task['events'])} events")


# --- what runs --------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """Return the environment without settings that would lead the demo elsewhere."""
    return {name: value for name, value in os.environ.items() if name not in FOREIGN}


def free_port() -> int:
    """Return a loopback port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def choose_model(folder: Path) -> Path:
    """Return the swarms file: the project's, or a copy with the model of ``MAIL_DEMO_LLM``."""
    source = ROOT / "swarms.json"
    model = os.environ.get("MAIL_DEMO_LLM")
    if not model:
        print("model: scripted (offline). MAIL_DEMO_LLM=<litellm model> uses a real one.")
        return source
    print(f"model: {model}")
    swarms = json.loads(source.read_text(encoding="utf-8"))
    for swarm in swarms:
        for agent in swarm["agents"]:
            params = agent.setdefault("agent_params", {})
            params |= {"llm": model, "use_proxy": model.startswith(PROXY)}
    copy = folder / "swarms.json"
    copy.write_text(json.dumps(swarms, indent=2), encoding="utf-8")
    return copy


@asynccontextmanager
async def server(folder: Path, log: Path, port: int) -> AsyncIterator[None]:
    """Run ``mail server`` in a folder; stop it with SIGTERM and see that it stopped well."""
    flags = {
        "--config": ROOT / "mail.toml",
        "--host": "127.0.0.1",
        "--port": port,
        "--swarm-source": choose_model(folder),
        "--swarm-registry": folder / "registry.json",
        "--store": store_url(folder),
        "--print-llm-streams": "false",
    }
    arguments = [str(part) for flag in flags.items() for part in flag]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *MAIL, "server", *arguments, cwd=folder, env=environment(), stdout=output, stderr=output
        )
        try:
            await until_healthy(process, port)
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


async def until_healthy(process: asyncio.subprocess.Process, port: int) -> None:
    """Wait until the server answers ``GET /health``."""
    deadline = time.monotonic() + START_LIMIT
    async with MAILClient(url(port), config=ClientConfig(timeout=5.0, verbose=False)) as client:
        while process.returncode is None and time.monotonic() < deadline:
            try:
                await client.get_health()
            except ClientHTTPError:
                await asyncio.sleep(0.1)
            else:
                return
    raise DemoFailedError("the server did not start")


async def make_token(folder: Path) -> str:
    """Make an access token with ``mail token create``, beside the running server."""
    process = await asyncio.create_subprocess_exec(
        *MAIL, "token", "create", "--role", "user", "--id", "newcomer",
        *("--store", store_url(folder)),
        cwd=folder, env=environment(), stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, notes = await process.communicate()
    if process.returncode != 0:
        raise DemoFailedError(f"mail token create: {notes.decode(errors='replace').strip()}")
    return output.decode().strip()


def store_url(folder: Path) -> str:
    """Return the URL of the demo's database."""
    return f"sqlite:///{folder / 'mail.db'}"


def url(port: int) -> str:
    """Return the server's URL."""
    return f"http://127.0.0.1:{port}"


async def demo(folder: Path, log: Path) -> None:
    """Run the whole demo in a folder."""
    port = free_port()
    headline(f"Starting a MAIL server at {url(port)}")
    async with server(folder, log, port):
        headline("Making an access token (mail token create --role user --id newcomer)")
        token = await make_token(folder)
        print(f"{token[:9]}…  (only its hash is stored)")
        config = ClientConfig(timeout=60.0, verbose=False)
        async with MAILClient(url(port), token, config=config) as client:
            swarm = (await client.ping())["swarm"]
            headline(f"Asking the swarm '{swarm['name']}' (POST /message, stream)")
            answer = await show_timeline(client)
            headline("Answer")
            print(answer)
            headline("Tasks (GET /tasks)")
            await show_tasks(client)
        if not os.environ.get("MAIL_DEMO_LLM") and EXPECTED not in answer:
            raise DemoFailedError(f"the answer lacks {EXPECTED}")


async def main() -> int:
    """Run the demo within its time limit; return the exit code."""
    with tempfile.TemporaryDirectory(prefix="mail-demo-") as name:
        log = Path(name) / "server.log"
        try:
            async with asyncio.timeout(TIME_LIMIT):
                await demo(Path(name), log)
        except (DemoFailedError, TimeoutError, RuntimeError, ValueError, OSError) as error:
            reason = str(error) or "it took too long"
            print(f"\nThe demo failed: {reason}", file=sys.stderr)
            if log.exists():
                tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:]
                print("Last lines of the server's log:", *tail, sep="\n  ", file=sys.stderr)
            return 1
    print("\nThat was MAIL. Next: `make serve`, and the quick start in README.md.")
    return 0


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.exit(asyncio.run(main()))
