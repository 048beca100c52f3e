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
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, TypeAlias

from mail.config.env import current
from mail.errors import MAILError, PortInUse

if TYPE_CHECKING:
    from collections.abc import Callable

    from mail.config.server import ServerConfig

__all__ = [
    "MissingUI",
    "PortInUse",
    "ServerOptions",
    "UIFailed",
    "UIProcess",
    "check_port",
    "exit_on_term",
    "serve_template",
]

logger = logging.getLogger(__name__)


_LOOPBACK: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - names
_LONGEST_START: Final = 120.0
_POLL: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """What a server is started with; see `mail.api.MAILSwarmTemplate.start_server`."""

    port: int
    host: str
    launch_ui: bool
    ui_port: int
    ui_path: str | PathLike[str] | None
    open_browser: bool
    server_url: str | None


Run: TypeAlias = "Callable[[ServerConfig, Callable[[], None] | None], None]"
"""Runs a server with a configuration, and calls something as its last act."""


def serve_template(name: str, options: ServerOptions, run: Run) -> None:
    """Serve a template until the process is told to stop; open its console, or run a UI beside it.

    Args:
        name: The template's.
        options: What the server is started with.
        run: Runs the server.

    Raises:
        MissingUI, PortInUse, UIFailed: see `mail.api.serving`.
        MAILError: an event loop runs in this thread.
        ConfigError, StoreError, SystemExit: see `mail.server.run.run_server`.
    """
    from mail.config.server import ServerConfig, SwarmConfig, base_url

    _refuse_inside_a_loop()
    swarm = SwarmConfig(name=name)
    if "registry_file" not in swarm.model_fields_set:  # the default is that of the example
        own = f"registries/{name.replace('/', '_')}.json"
        swarm = swarm.model_copy(update={"registry_file": own})
    config = ServerConfig(host=options.host, port=options.port, reload=False, swarm=swarm)
    _set_up_logging(config)
    check_port(options.host, options.port, "the server")
    with ExitStack() as stack:
        kill_ui: Callable[[], None] | None = None
        if options.launch_ui and options.ui_path is None:
            stack.enter_context(_console(config, options))
        elif options.launch_ui and options.ui_path is not None:
            ui = UIProcess(options.ui_path, options.ui_port, options.server_url or base_url(config))
            ui.check()
            stack.enter_context(exit_on_term())
            stack.enter_context(ui.running())
            kill_ui = ui.kill
            if options.open_browser:
                _open_browser(f"http://localhost:{options.ui_port}")
        run(config, kill_ui)


@contextmanager
def _console(config: "ServerConfig", options: ServerOptions) -> Iterator[None]:
    """Open the console once the server listens, and lead those who ask at the UI's port to it."""
    from mail.config.server import base_url

    if not config.console:
        logger.info("no user interface is started: [server] console is switched off")
        yield
        return
    address = f"{(options.server_url or base_url(config)).rstrip('/')}/console"
    logger.info("the console is at %s", address)
    stopped = threading.Event()
    if options.open_browser:
        place = (_LOOPBACK.get(options.host, options.host), options.port)
        open_it = threading.Thread(
            target=_open_when_served, args=(address, place, stopped), name="console", daemon=True
        )
        open_it.start()
    with _redirecting(options, address):
        try:
            yield
        finally:
            stopped.set()


def _open_when_served(address: str, place: tuple[str, int], stopped: threading.Event) -> None:
    latest = time.monotonic() + _LONGEST_START
    while time.monotonic() < latest and not stopped.wait(_POLL):
        with suppress(OSError), socket.create_connection(place, timeout=_POLL):
            _open_browser(address)
            return


@contextmanager
def _redirecting(options: ServerOptions, address: str) -> Iterator[None]:
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

    if options.ui_port == options.port:
        yield
        return
    try:
        listener = http.server.ThreadingHTTPServer(("127.0.0.1", options.ui_port), Redirect)
    except OSError as error:
        logger.info("port %s does not lead to the console: %s", options.ui_port, error)
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


SERVER_VARIABLE: Final = "NEXT_PUBLIC_MAIL_SERVER_URL"
_FIRST_SECONDS: Final = 2.0
_STOP_SECONDS: Final = 5.0


class MissingUI(MAILError, FileNotFoundError):
    """The UI's folder, its packages, or pnpm itself is not there."""


class UIFailed(MAILError, RuntimeError):
    """The UI ended right after its start."""


def check_port(host: str, port: int, what: str) -> None:
    """Check that a port can be listened on.

    Raises:
        PortInUse: it cannot.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise PortInUse(f"{what} cannot listen on {host}:{port}: {error.strerror}") from error


class UIProcess:
    """``pnpm dev`` in a folder, with all the processes that it starts.

    Args:
        folder: Where the UI's ``package.json`` and ``node_modules`` are.
        port: Where it listens.
        server_url: Where it finds the server.
    """

    def __init__(self, folder: str | os.PathLike[str], port: int, server_url: str) -> None:
        self._folder = Path(folder).expanduser()
        self._port = port
        self._environ = {**current(), SERVER_VARIABLE: server_url}
        self._process: subprocess.Popen[bytes] | None = None

    def check(self) -> None:
        """Check that the UI is there and its port is free.

        Raises:
            MissingUI, PortInUse: it is not.
        """
        if not self._folder.is_dir():
            raise MissingUI(f"UI directory '{self._folder}' not found; pass another ui_path")
        if not (self._folder / "node_modules").is_dir():
            raise MissingUI(
                f"node_modules not found in '{self._folder}'; run 'pnpm install' there first"
            )
        check_port("", self._port, "the UI")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the UI as long as the context lasts.

        Raises:
            MissingUI: pnpm is not installed.
            UIFailed: the UI ended within two seconds.
        """
        try:
            self._start()
            yield
        finally:
            self.stop()

    def _start(self) -> None:
        command = ["pnpm", "dev", "--port", str(self._port)]
        try:
            # A session of its own, so that what pnpm starts can be stopped with it.
            self._process = subprocess.Popen(  # noqa: S603 - a fixed command in the given folder
                command, cwd=self._folder, env=self._environ, start_new_session=True
            )
        except FileNotFoundError as error:
            raise MissingUI("pnpm not found; install it to run a UI") from error
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(_FIRST_SECONDS)
            raise UIFailed(f"'{' '.join(command)}' exited immediately with code {code}")

    def stop(self) -> None:
        """Stop the UI, within a few seconds."""
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        self.kill()
        self._process.wait()

    def kill(self) -> None:
        """Stop the UI at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)


@contextmanager
def exit_on_term() -> Iterator[None]:
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
