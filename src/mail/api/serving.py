"""A template as a server: ``MAILSwarmTemplate.start_server``."""

import asyncio
import http.server
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, TypeAlias

from mail.config.env import current
from mail.errors import MAILError, PortInUse

if TYPE_CHECKING:
    from collections.abc import Callable

    from mail.config.server import ServerConfig

logger = logging.getLogger(__name__)


_LOOPBACK: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - names
_LONGEST_START: Final = 120.0
_POLL: Final = 0.1
_SERVER_VARIABLE: Final = "NEXT_PUBLIC_MAIL_SERVER_URL"
_FIRST_SECONDS: Final = 2.0
_STOP_SECONDS: Final = 5.0


Run: TypeAlias = "Callable[[ServerConfig, Callable[[], None] | None], None]"
"""Runs a server with a configuration, and calls something as its last act."""


class MissingUI(MAILError, FileNotFoundError):
    """The UI's folder, its packages, or pnpm itself is not there."""


class UIFailed(MAILError, RuntimeError):
    """The UI ended right after its start."""


def serve_template(  # noqa: PLR0913 - what `MAILSwarmTemplate.start_server` takes
    name: str,
    run: Run,
    *,
    port: int,
    host: str,
    launch_ui: bool,
    ui_port: int,
    ui_path: str | PathLike[str] | None,
    open_browser: bool,
    server_url: str | None,
) -> None:
    """Serve a template until the process is told to stop; open its console, or run a UI beside it.

    Args:
        name: The template's.
        run: Runs the server.
        The others are those of `mail.api.MAILSwarmTemplate.start_server`.

    Raises:
        MissingUI, PortInUse, UIFailed: the UI is not there, a port is taken, or the UI ended.
        MAILError: an event loop runs in this thread.
        ConfigError, StoreError, SystemExit: see `mail.server.run.run_server`.
    """
    from mail.config.server import ServerConfig, SwarmConfig, base_url

    _refuse_inside_a_loop()
    swarm = SwarmConfig(name=name)
    if "registry_file" not in swarm.model_fields_set:  # the default is that of the example
        own = f"registries/{name.replace('/', '_')}.json"
        swarm = swarm.model_copy(update={"registry_file": own})
    config = ServerConfig(host=host, port=port, reload=False, swarm=swarm)
    _set_up_logging(config)
    _check_port(host, port, "the server")
    url = server_url or base_url(config)
    with ExitStack() as stack:
        kill_ui: Callable[[], None] | None = None
        if launch_ui and ui_path is not None:
            folder = _ui_folder(ui_path, ui_port)
            stack.enter_context(_exit_on_term())
            kill_ui = stack.enter_context(_running_ui(folder, ui_port, url))
            if open_browser:
                _open_browser(f"http://localhost:{ui_port}")
        elif launch_ui and config.console:
            address = f"{url.rstrip('/')}/console"
            logger.info("the console is at %s", address)
            if open_browser:
                stack.enter_context(_opened_when_served(address, host, port))
            if ui_port != port:
                stack.enter_context(_redirecting(ui_port, address))
        elif launch_ui:
            logger.info("no user interface is started: [server] console is switched off")
        run(config, kill_ui)


@contextmanager
def _opened_when_served(address: str, host: str, port: int) -> Iterator[None]:
    """Open a page in the browser once the server listens."""
    stopped, latest = threading.Event(), time.monotonic() + _LONGEST_START
    place = (_LOOPBACK.get(host, host), port)

    def open_it() -> None:
        while time.monotonic() < latest and not stopped.wait(_POLL):
            with suppress(OSError), socket.create_connection(place, timeout=_POLL):
                _open_browser(address)
                return

    threading.Thread(target=open_it, name="console", daemon=True).start()
    try:
        yield
    finally:
        stopped.set()


@contextmanager
def _redirecting(ui_port: int, address: str) -> Iterator[None]:
    """Answer at the UI's port on this machine with a redirect, if the port is free."""

    class Redirect(http.server.BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            self.send_response(http.HTTPStatus.TEMPORARY_REDIRECT)
            self.send_header("Location", address)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing: the server logs who comes."""

    try:
        listener = http.server.ThreadingHTTPServer(("127.0.0.1", ui_port), Redirect)
    except OSError as error:
        logger.info("port %s does not lead to the console: %s", ui_port, error)
        yield
        return
    with listener:
        serving = threading.Thread(target=listener.serve_forever, args=(_POLL,), daemon=True)
        serving.start()
        try:
            yield
        finally:
            listener.shutdown()
            serving.join()


def _refuse_inside_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise MAILError(
        "start_server blocks; call it from synchronous code, where no event loop is running"
    )


def _set_up_logging(config: "ServerConfig") -> None:
    """Log as `mail server` does, unless the program has a logging of its own."""
    if not logging.getLogger("mail").hasHandlers():
        from mail.config.server import resolve_log_format
        from mail.logs.setup import init_logger

        init_logger(log_format=resolve_log_format(config), max_bytes=config.log_max_bytes)


def _open_browser(url: str) -> None:
    """Open a page; in a thread, because text browsers do not return."""
    threading.Thread(target=webbrowser.open, args=(url,), name="browser", daemon=True).start()


def _check_port(host: str, port: int, what: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise PortInUse(f"{what} cannot listen on {host}:{port}: {error.strerror}") from error


def _ui_folder(path: str | PathLike[str], port: int) -> Path:
    """Return the folder of a UI, once it is known to be there and its port to be free."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise MissingUI(f"UI directory '{folder}' not found; pass another ui_path")
    if not (folder / "node_modules").is_dir():
        raise MissingUI(f"node_modules not found in '{folder}'; run 'pnpm install' there first")
    _check_port("", port, "the UI")
    return folder


@contextmanager
def _running_ui(folder: Path, port: int, server_url: str) -> "Iterator[Callable[[], None]]":
    """Run ``pnpm dev``, with all the processes that it starts; give what kills them at once."""
    command = ["pnpm", "dev", "--port", str(port)]
    environ = {**current(), _SERVER_VARIABLE: server_url}
    try:
        # A session of its own, so that what pnpm starts can be stopped with it.
        process = subprocess.Popen(  # noqa: S603 - a fixed command in the given folder
            command, cwd=folder, env=environ, start_new_session=True
        )
    except FileNotFoundError as error:
        raise MissingUI("pnpm not found; install it to run a UI") from error

    def send(number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)

    try:
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(_FIRST_SECONDS)
            raise UIFailed(f"'{' '.join(command)}' exited immediately with code {code}")
        yield partial(send, signal.SIGKILL)
    finally:
        send(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
        send(signal.SIGKILL)
        process.wait()


@contextmanager
def _exit_on_term() -> Iterator[None]:
    """Let SIGTERM unwind the program, where it would end it on the spot and leave a UI behind."""
    number = signal.SIGTERM
    unhandled = signal.getsignal(number) == signal.SIG_DFL
    if threading.current_thread() is not threading.main_thread() or not unhandled:
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    signal.signal(number, leave)
    try:
        yield
    finally:
        signal.signal(number, signal.SIG_DFL)
