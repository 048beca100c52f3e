"""``MAILSwarmTemplate.start_server`` in a process of its own, with a UI that is only pretended."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from mail import MAILAgentTemplate, MAILSwarmTemplate
from mail.auth.callers import hash_token
from mail.db.records import TokenRow
from mail.db.sqlite.driver import SQLiteStore
from mail.errors import MAILError
from scripts.ports import free_port

ROOT = Path(__file__).parents[2]
TOKEN = "mail_start-server-test-000000000000"

PROGRAM = """
    import sys, webbrowser
    from mail import MAILAgentTemplate, MAILSwarmTemplate

    webbrowser.open = lambda url: print("browser", url, flush=True)
    supervisor = MAILAgentTemplate.from_example("supervisor", ["weather"])
    weather = MAILAgentTemplate.from_example("weather", ["supervisor"])
    template = MAILSwarmTemplate(
        name="served", agents=[supervisor, weather], entrypoint="supervisor", keywords=["demo"]
    )
    template.start_server(host="127.0.0.1", **{options})
    print("returned", flush=True)
"""

PNPM = """\
#!{python}
import json, os, signal, subprocess, sys, time
from pathlib import Path

child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
Path("started.json").write_text(json.dumps({{
    "arguments": sys.argv[1:],
    "folder": os.getcwd(),
    "url": os.environ.get("NEXT_PUBLIC_MAIL_SERVER_URL"),
    "pids": [os.getpid(), child.pid],
}}))
signal.signal(signal.SIGTERM, signal.SIG_IGN if Path("stubborn").exists() else signal.SIG_DFL)
if Path("breaks").exists():
    child.kill()
    sys.exit(3)
time.sleep(600)
"""


@pytest.fixture
def ui(tmp_path: Path) -> Path:
    """Return the folder of a UI, and put a pnpm beside it."""
    folder, tools = tmp_path / "ui", tmp_path / "bin"
    (folder / "node_modules").mkdir(parents=True)
    tools.mkdir()
    pnpm = tools / "pnpm"
    pnpm.write_text(PNPM.format(python=sys.executable))
    pnpm.chmod(0o755)
    return folder


def _environment(folder: Path) -> dict[str, str]:
    return {
        "PYTHONPATH": str(ROOT / "src"),
        "PATH": str(folder / "bin"),
        "DATABASE_URL": f"sqlite:///{folder / 'mail.db'}",
    }


@contextmanager
def _program(folder: Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a program that starts the server; it is killed at the end, if it still runs."""
    code = textwrap.dedent(PROGRAM).replace("{options}", repr(options))
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        env=_environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _wait_until_it_answers(process: subprocess.Popen[str], url: str) -> dict[str, Any]:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        try:
            answer = httpx.get(url, timeout=5)
        except httpx.TransportError:
            time.sleep(0.02)
            continue
        found: dict[str, Any] = answer.json()
        return found
    raise AssertionError("the server does not answer")


def _wait_until_started(process: subprocess.Popen[str], ui: Path) -> dict[str, Any]:
    """Return what the UI wrote of itself."""
    file = ui / "started.json"
    while not file.exists() or not file.read_text():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def _wait_until_gone(pids: list[int]) -> None:
    """Wait until processes that were killed have had their last moment on the processor."""
    deadline = time.monotonic() + 10
    while any(map(_lives, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def _make_token(folder: Path) -> None:
    store = SQLiteStore(folder / "mail.db")
    await store.open()
    await store.put_token(TokenRow(hash_token(TOKEN), "user", "alice", "2026-01-01T00:00:00+00:00"))
    await store.close()


def test_the_template_is_served_until_the_process_is_told_to_stop(tmp_path: Path) -> None:
    asyncio.run(_make_token(tmp_path))
    port, ui_port = free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    with _program(tmp_path, port=port, ui_port=ui_port) as process:
        assert process.stdout and process.stdout.readline() == f"browser {url}/console\n"
        redirect = httpx.get(f"http://127.0.0.1:{ui_port}/agents")
        assert (redirect.status_code, redirect.headers["location"]) == (307, f"{url}/console")
        assert "MAIL console" in httpx.get(redirect.headers["location"], timeout=30).text
        root = _wait_until_it_answers(process, url)
        assert root["swarm"]["name"] == "served"
        assert root["swarm"]["keywords"] == ["demo"]
        answer = httpx.post(
            f"{url}/message",
            json={"body": "What's the weather in Paris tomorrow?"},
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=90,
        )
        assert "Weather in Paris, tomorrow" in answer.json()["response"]
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    assert out.splitlines() == ["returned"]
    assert err.count(f"the console is at {url}/console") == 1


def test_the_console_needs_neither_a_browser_nor_a_port_of_its_own(tmp_path: Path) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = {"ui_port": taken.getsockname()[1], "open_browser": False}
        with _program(tmp_path, port=port, **options) as process:
            _wait_until_it_answers(process, f"http://127.0.0.1:{port}")
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    assert out.splitlines() == ["returned"]
    assert f"port {options['ui_port']} does not lead to the console" in err


def test_a_ui_runs_as_long_as_the_server(tmp_path: Path, ui: Path) -> None:
    port, ui_port = free_port(), free_port()
    with _program(tmp_path, port=port, ui_port=ui_port, ui_path=str(ui)) as process:
        _wait_until_it_answers(process, f"http://127.0.0.1:{port}")
        started = _wait_until_started(process, ui)
        assert started["arguments"] == ["dev", "--port", str(ui_port)]
        assert started["folder"] == str(ui)
        assert started["url"] == f"http://127.0.0.1:{port}"
        assert all(map(_lives, started["pids"]))
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    assert out.splitlines() == [f"browser http://localhost:{ui_port}", "returned"]
    assert "console" not in err
    _wait_until_gone(started["pids"])


def test_a_ui_that_will_not_go_is_killed_and_the_browser_can_stay_closed(
    tmp_path: Path, ui: Path
) -> None:
    (ui / "stubborn").touch()
    port = free_port()
    options = {"ui_port": free_port(), "ui_path": str(ui), "server_url": "https://mail.example"}
    with _program(tmp_path, port=port, open_browser=False, **options) as process:
        _wait_until_it_answers(process, f"http://127.0.0.1:{port}")
        started = _wait_until_started(process, ui)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=90)
    assert started["url"] == "https://mail.example"
    assert process.returncode == 0, err
    assert out.splitlines() == ["returned"]
    _wait_until_gone(started["pids"])


def test_a_stop_while_the_ui_starts_leaves_nothing_behind(tmp_path: Path, ui: Path) -> None:
    options = {"port": free_port(), "ui_port": free_port(), "ui_path": str(ui)}
    with _program(tmp_path, **options) as process:
        started = _wait_until_started(process, ui)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=90)
    assert process.returncode == 128 + signal.SIGTERM
    _wait_until_gone(started["pids"])


# --- what is refused, before a server or a UI runs ----------------------------------------------


@pytest.fixture
def template() -> MAILSwarmTemplate:
    solo = MAILAgentTemplate.from_example("supervisor", [])
    return MAILSwarmTemplate("solo", agents=[solo], entrypoint="supervisor")


def _start(template: MAILSwarmTemplate, **options: Any) -> None:
    template.start_server(host="127.0.0.1", **({"port": free_port()} | options))


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("", "UI directory .* not found"),
        ("node_modules", "node_modules not found in .*pnpm install"),
    ],
)
def test_a_ui_that_is_not_there_is_refused(
    template: MAILSwarmTemplate, tmp_path: Path, missing: str, text: str
) -> None:
    folder = tmp_path / "ui"
    if missing:
        folder.mkdir()
    with pytest.raises(FileNotFoundError, match=text) as caught:
        _start(template, ui_path=folder)
    assert isinstance(caught.value, MAILError)


def test_a_missing_pnpm_is_told(
    template: MAILSwarmTemplate, ui: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="pnpm not found"):
        _start(template, ui_path=ui, ui_port=free_port())


def test_a_ui_that_ends_at_once_is_an_error(
    template: MAILSwarmTemplate, ui: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ui / "breaks").touch()
    monkeypatch.setenv("PATH", str(ui.parent / "bin"))
    with pytest.raises(RuntimeError, match=r"'pnpm dev --port .*' exited immediately with code 3"):
        _start(template, ui_path=ui, ui_port=free_port())


@pytest.mark.parametrize("busy", ["port", "ui_port"])
def test_a_port_in_use_is_an_error(template: MAILSwarmTemplate, ui: Path, busy: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ports = {"port": free_port(), "ui_port": free_port(), busy: server.getsockname()[1]}
        with pytest.raises(OSError, match=r"cannot listen on .*in use"):
            _start(template, ui_path=ui, **ports)
    assert not (ui / "started.json").exists()


async def test_it_is_refused_inside_an_event_loop(template: MAILSwarmTemplate) -> None:
    with pytest.raises(MAILError, match="start_server blocks"):
        _start(template)
