"""Run the server: drain first when told to stop, and be gone within the grace period.

uvicorn alone waits for its connections before it ends the lifespan, so open streams and waiting
callers would hold it up for ever. Here the first signal starts the drain while the server still
answers (new work gets 503), and only then uvicorn stops. The second signal exits.
"""

import asyncio
import contextvars
import ctypes
import errno
import gc
import json
import logging
import os
import socket
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.supervisors.statreload import StatReload

from mail.auth.callers import AuthBackend
from mail.config.env import current
from mail.config.server import (
    ServerConfig,
    export_environment,
    resolve_log_format,
    resolve_store_url,
    resolve_swarms_file,
)
from mail.config.toml import find_config_file
from mail.db.store import Store
from mail.errors import ConfigError, MAILError, PortInUse, StoreError
from mail.llm.provider_env import ModelUse, model_warnings
from mail.logs.setup import init_logger
from mail.server.app import create_app
from mail.server.connections import IDLE_SECONDS, allow_open_files, connections
from mail.server.middleware import MAX_HEADER_BYTES
from mail.server.state import ServerState
from mail.server.workers import Workers

if TYPE_CHECKING:
    from fastapi import FastAPI

    from mail.api import MAILSwarmTemplate

_CONNECTION_SECONDS: Final = 3
_EXTRA_SECONDS: Final = 5.0
_ACCEPTED_SECONDS: Final = 0.5
"""For the requests of connections that were accepted when others take over the port."""
_LEAVING_SECONDS: Final = 3.0
"""For a load balancer to notice that the server is not ready any more."""
_CONFIG_VARIABLE: Final = "MAIL_SERVER_CONFIG"
_RELOADED: Final = "mail.server:app"
"""The name that uvicorn's reloader wants; `_serve_until_changed` makes the app."""
_ABSENT: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})

_TURN_SECONDS: Final = 0.0015
"""The time that a thread keeps the interpreter while others want it.

With a third of that, 200 new users at once cost a third more CPU, for nothing but handing over.
"""
_COLLECT_AFTER: Final = (20_000, 1, 130)
"""New objects until the youngest are looked at; such looks until older ones are.

The second number is small because everything else stops during a look: 60,000 objects take 15 ms.
"""

_M_MMAP_THRESHOLD: Final = -3
_LARGE_BLOCK: Final = 256 * 1024
"""Bytes of a block of memory that is given back when it is freed."""
_IDLE_SECONDS: Final = 10.0
"""Between two looks whether memory can be given back."""
_LITTLE_WORK: Final = 0.1
"""The share of one processor that an idle server may take."""
_MUCH_MEMORY: Final = 16 * 1024 * 1024

_log = logging.getLogger("mail.server")


class DrainingServer(uvicorn.Server):
    """A uvicorn server whose first signal drains the app before it stops.

    ``last_act`` is called before the process exits without the usual cleaning up, ``ready`` when it
    listens.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        last_act: Callable[[], object] | None = None,
        ready: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._state = state
        self._last_act = last_act
        self._told = False
        self._spare_memory = SpareMemory()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._surroundings = contextvars.Context()
        self._stopping: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the app and the sockets."""
        self._loop = asyncio.get_running_loop()
        self._surroundings = contextvars.copy_context()
        # Here, a failure reaches whoever runs the server.
        await self._state.prepare()
        load_models(self._state.pool.served.uses)
        await self._state.store.open()
        await self._state.open_files()
        await super().startup(sockets)
        share_interpreter()
        spare_collector()
        give_back_large_blocks()
        if self.started:
            self._spare_memory.start()
            if self._ready is not None:
                self._ready()
        for server in self.servers if self.started else ():
            for listener in server.sockets:
                host, port = listener.getsockname()[:2]
                _log.info("listening on http://%s:%s", f"[{host}]" if ":" in host else host, port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the sockets and the app."""
        self._spare_memory.stop()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal to stop: drain at the first one, exit at the second."""
        if self._told:
            self._exit_now(128 + sig)
        self._told = True
        self._start_watchdog()
        if self.started and self._loop is not None:
            # A signal may come in the middle of a turn, whose context is none of the drain's.
            self._loop.call_soon_threadsafe(self._drain_then_exit, context=self._surroundings)
        else:
            self.should_exit = True

    def _drain_then_exit(self) -> None:
        _log.info("draining; a second signal exits immediately")
        self._stopping = asyncio.create_task(self._drain(), name="drain then exit")

    async def _drain(self) -> None:
        try:
            await self._let_others_serve()
            await self._state.begin_drain()
        finally:
            self.should_exit = True

    async def _let_others_serve(self) -> None:
        """Serve on until new requests go to the other workers, or servers of the swarm, if any."""
        state = self._state
        if self._ready is not None:
            for server in self.servers:
                server.close()
            await asyncio.sleep(_ACCEPTED_SECONDS)
        elif state.store.shared:
            with suppress(StoreError):
                if len(await state.store.nodes()) > 1:
                    state.leaving = True
                    await asyncio.sleep(_LEAVING_SECONDS)

    def _start_watchdog(self) -> None:
        """Exit hard if the orderly way takes too long: a blocked loop cannot stop itself."""
        seconds = self._state.config.limits.shutdown_grace + _LEAVING_SECONDS + _EXTRA_SECONDS
        timer = threading.Timer(seconds, self._exit_now, (1,))
        timer.daemon = True
        timer.start()

    def _exit_now(self, code: int) -> None:
        """Exit hard; the store survives it, for nothing is acknowledged before a commit."""
        try:
            if self._last_act is not None:
                self._last_act()
        finally:
            os._exit(code)


def run_server(
    config: ServerConfig,
    *,
    template: "MAILSwarmTemplate | None" = None,
    store: Store | None = None,
    auth: AuthBackend | None = None,
    last_act: Callable[[], object] | None = None,
) -> None:
    """Serve until the process is told to stop.

    Args:
        config: Settings. With ``reload`` the server runs in a child process that is replaced
            when the code, the swarms file or ``mail.toml`` changes, and with several ``workers`` in
            as many; the other arguments cannot be given then.
        template, store, auth: See `mail.server.app.create_app`.
        last_act: Called before the process exits hard, at a second signal or when stopping takes
            too long; it must be quick.

    Raises:
        ConfigError: a setting, the swarm or the environment is wrong.
        StoreError: the store cannot be opened, or another process owns it, or came to own it.
        PortInUse: the server cannot listen where it should; nothing was begun.
        SystemExit: the start failed (the log says why).
    """
    export_environment(config, current())
    _check_workers(config)
    with _bound(config) as sockets:
        app = create_app(config, template=template, store=store, auth=auth)
        if config.reload:
            _run_reloading(config, app.state.mail, sockets)
        elif config.workers > 1:
            asyncio.run(app.state.mail.prepare())  # so that a mistake ends the command
            current()[_CONFIG_VARIABLE] = json.dumps(config.overrides())
            Workers(config.workers, _serve_as_worker, sockets).run()
        else:
            _serve(app, sockets, last_act)


def _check_workers(config: ServerConfig) -> None:
    """Check that as many processes can serve as are asked for."""
    place = config.place("workers")
    if config.workers > 1 and config.reload:
        raise ConfigError(f"{place}: a server that reloads has one process; leave one of them out")
    shared = resolve_store_url(config).lower().startswith(("postgresql:", "postgres:"))
    if config.workers > 1 and not shared:
        raise ConfigError(
            f"{place}: several processes need a PostgreSQL database, which they can share; set "
            "DATABASE_URL to postgresql://…, or use one process"
        )


def bind(config: ServerConfig) -> list[socket.socket]:
    """Bind the sockets that a server is going to listen on.

    Raises:
        PortInUse: the port is in use, or the host is not an address of this machine.
    """
    sockets: list[socket.socket] = []
    absent: OSError | None = None
    with ExitStack() as undo:
        for family, kind, protocol, _, address in dict.fromkeys(_addresses(config)):
            try:
                listener = undo.enter_context(socket.socket(family, kind, protocol))
                _bind(listener, address)
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise _refused(config, error) from error
                absent = error  # of IPv4 and IPv6, a machine may have one switched off
            else:
                sockets.append(listener)
        if absent is not None and not sockets:
            raise _refused(config, absent) from absent
        undo.pop_all()
    return sockets


def _addresses(config: ServerConfig) -> list[Any]:
    try:
        return socket.getaddrinfo(
            config.host or None, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise _refused(config, error) from error


def _bind(listener: socket.socket, address: Any) -> None:
    if os.name == "posix":  # elsewhere the option would let two programs have one port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listener.family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.bind(address)


def _refused(config: ServerConfig, error: OSError) -> PortInUse:
    where = f"{config.host}:{config.port}"
    if isinstance(error, socket.gaierror) or error.errno in _ABSENT:
        return PortInUse(
            f"{config.place('host')}: '{config.host}' is not an address of this machine; use "
            "127.0.0.1 to serve this machine only, or 0.0.0.0 for every interface"
        )
    if error.errno == errno.EADDRINUSE:
        problem = f"{where} is in use, perhaps by a running server; stop it, or use another port"
    else:
        problem = f"cannot listen on {where}: {error.strerror}; use another port"
    return PortInUse(f"{config.place('port')}: {problem}")


@contextmanager
def _bound(config: ServerConfig) -> Iterator[list[socket.socket]]:
    sockets = bind(config)
    try:
        yield sockets
    finally:
        for listener in sockets:
            listener.close()


def _serve(
    app: "FastAPI",
    sockets: list[socket.socket],
    last_act: Callable[[], object] | None = None,
    ready: Callable[[], object] | None = None,
) -> None:
    state: ServerState = app.state.mail
    state.host_drains = True
    options = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_CONNECTION_SECONDS,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES * 2,
        timeout_keep_alive=IDLE_SECONDS,
        http=connections(state.config.limits),
        ws="none",
    )
    allow_open_files(state.config.limits)
    DrainingServer(options, state, last_act, ready).run(sockets)


def _run_reloading(config: ServerConfig, state: ServerState, sockets: list[socket.socket]) -> None:
    asyncio.run(state.prepare())  # so that a mistake ends the command, as without reloading
    current()[_CONFIG_VARIABLE] = json.dumps(config.overrides())
    options = uvicorn.Config(_RELOADED, reload=True, log_config=None)
    watcher = _Reload(options, _serve_until_changed, sockets)
    watcher.files = [resolve_swarms_file(config.swarm), *_imported_files()]
    if (path := find_config_file()) is not None:
        watcher.files.append(path)
    watcher.run()


class _Reload(StatReload):
    """Restarts the server when the folder's code, or one of ``files``, changes."""

    files: list[Path]

    def iter_py_files(self) -> Iterator[Path]:
        yield from super().iter_py_files()
        yield from self.files


def _imported_files() -> list[Path]:
    """Return the code that was imported from elsewhere than Python's own folders."""
    installed = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platlib", "purelib"))
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return [Path(file) for file in files if file and not file.startswith(installed)]


def _serve_until_changed(sockets: list[socket.socket] | None) -> None:
    """Serve in a reloading server's child process."""
    _serve_as_child(sockets or [], "not serving until a file changes")


def _serve_as_worker(sockets: list[socket.socket], ready: Callable[[], object]) -> None:
    """Serve in a process that is one of several."""
    _serve_as_child(sockets, "cannot serve", ready)


def _serve_as_child(
    sockets: list[socket.socket], refused: str, ready: Callable[[], object] | None = None
) -> None:
    """Serve in a child process; its settings are in the environment."""
    init_logger(log_dir=None)  # the parent's handlers did not come along
    try:
        config = ServerConfig(**json.loads(current()[_CONFIG_VARIABLE]))
        init_logger(log_format=resolve_log_format(config), max_bytes=config.log_max_bytes)
        _serve(create_app(config), sockets, ready=ready)
    except MAILError as error:
        _log.error("%s: %s", refused, error)
        sys.exit(1)


_ADAPTER: Final = "mail.llm.litellm_model"


def load_models(uses: Sequence[ModelUse] = ()) -> threading.Thread | None:
    """Begin to load what the served swarm's agents will need; None when that is nothing.

    Models that cannot be used, because of a missing key for example, are logged.

    For a server in a process of its own, once its swarm was built: the objects that are there
    when the loading ends are never looked at by the garbage collector again.
    """
    if _ADAPTER not in sys.modules or ("litellm" in sys.modules and not uses):
        return None  # no agent asks a provider's model, or everything is there
    thread = threading.Thread(target=_load, args=(uses,), name="model library", daemon=True)
    thread.start()
    return thread


def share_interpreter() -> None:
    """Let threads take turns often.

    For a server in a process of its own. A commit needs the interpreter a dozen times and would
    wait 5 ms for it each time while the event loop has much to do, and so would the event loop
    while a thread has.
    """
    sys.setswitchinterval(_TURN_SECONDS)


def spare_collector() -> None:
    """Let the garbage collector skip what is there now, and look at the rest less often.

    For a server in a process of its own. At its usual pace, which is meant for small programs, the
    collector takes a quarter of the time that a request takes.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


def give_back_large_blocks() -> None:
    """Have the C library give back at once what large texts took. Does nothing but with glibc.

    For a server in a process of its own. Else it keeps many of them for later ones, of other sizes.
    """
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    if adjust is not None:
        adjust(_M_MMAP_THRESHOLD, _LARGE_BLOCK)


class SpareMemory:
    """Gives memory back to the system when a busy time is over. Does nothing but on Linux.

    After large requests there is garbage that the collector would find much later, and the C
    library keeps what was freed. Both are seen to when the process has little to do.
    """

    def __init__(self) -> None:
        self._least: float = _resident()
        self._worked = time.process_time()
        self._over = threading.Event()

    def start(self) -> None:
        """Look again and again in a thread."""
        self._least = _resident()
        if self._least:
            threading.Thread(target=self._run, name="spare memory", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(_IDLE_SECONDS):
            self.look()

    def look(self) -> bool:
        """Give memory back if much has come, and little was done since the last look."""
        before, self._worked = self._worked, time.process_time()
        self._least = min(self._least, _resident())
        busy = self._worked - before > _IDLE_SECONDS * _LITTLE_WORK
        if busy or _resident() < self._least + _MUCH_MEMORY:
            return False
        gc.collect()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc only
        if trim is not None:
            trim(0)
        self._least = _resident()
        return True


def _resident() -> float:
    """Return how many bytes the process has in memory; 0 where that is not known."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
        return float(pages * os.sysconf("SC_PAGE_SIZE"))
    except OSError:
        return 0.0


def _load(uses: Sequence[ModelUse]) -> None:
    from mail.llm.litellm_model import load_library, load_parts

    try:
        load_parts()
        for text in model_warnings(load_library(), uses):
            _log.warning("%s", text)
    except Exception:  # noqa: BLE001 - whoever needs the library learns of it with the first call
        _log.exception("the model library cannot be loaded")
        return
    spare_collector()
