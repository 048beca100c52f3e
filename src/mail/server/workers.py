"""Several server processes behind one port: ``mail server --workers N``.

The parent serves nothing. It binds the port, starts the workers, replaces one that dies, and passes
signals on: SIGTERM and SIGINT stop all, SIGHUP replaces one worker after the other. Each worker is
a node of its own on the PostgreSQL database. Workers stop when their parent is gone.
"""

import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Final

_START_SECONDS: Final = 120.0
"""For a worker to begin to serve, when others are replaced one by one."""
_STEADY_SECONDS: Final = 10.0
"""A worker that ends sooner has failed to start, or would fail again at once."""
_PAUSE_SECONDS: Final = 1.0
_MOST_FAILURES: Final = 5

_log = logging.getLogger("mail.server")

_SPAWN: Final = multiprocessing.get_context("spawn")

Serve = Callable[[list[socket.socket], Callable[[], None]], None]
"""Serves on sockets until the process is told to stop, and calls the second argument when ready."""


class _Worker:
    """One server process, and the two ends of what it and its parent say to each other."""

    def __init__(self, serve: Serve, sockets: list[socket.socket]) -> None:
        self.began = time.monotonic()
        self._has_served = False
        self._ready, says = _SPAWN.Pipe(duplex=False)
        hears, self._alive = _SPAWN.Pipe(duplex=False)
        self.process = _SPAWN.Process(target=_work, args=(serve, sockets, says, hears))
        self.process.start()
        says.close()
        hears.close()

    def serves(self, seconds: float = 0.0) -> bool | None:
        """Tell whether it has begun to serve, or ended before that; None if neither yet."""
        if not self._has_served and self._ready.poll(seconds):
            try:
                self._has_served = bool(self._ready.recv())
            except EOFError:
                return False
        return self._has_served or None

    def stop(self) -> None:
        """Tell it to stop, if it has not."""
        if self.process.is_alive():
            self.process.terminate()

    def forget(self) -> None:
        """Wait for its end, and let go of what belongs to it."""
        self.process.join()
        for end in (self._ready, self._alive):
            end.close()
        self.process.close()


def _work(serve: Serve, sockets: list[socket.socket], says: Connection, hears: Connection) -> None:
    """Serve, in the worker's process."""
    os.setpgid(0, 0)  # Ctrl-C is the parent's, who passes it on
    threading.Thread(target=_end_with_parent, args=(hears,), daemon=True).start()
    serve(sockets, lambda: says.send(True))


def _end_with_parent(hears: Connection) -> None:
    hears.poll(None)  # nothing is ever said: this end breaks when the parent is gone
    os.kill(os.getpid(), signal.SIGTERM)


class Workers:
    """The workers of one parent.

    Args:
        count: How many there are.
        serve: What each does; a function that can be imported.
        sockets: The sockets that all of them listen on.
    """

    def __init__(self, count: int, serve: Serve, sockets: list[socket.socket]) -> None:
        self._count = count
        self._serve = serve
        self._sockets = sockets
        self._workers: list[_Worker] = []
        self._failures = 0
        self._told: list[int] = []
        self._hears, self._says = socket.socketpair()
        self._hears.setblocking(False)

    def run(self) -> None:
        """Keep them running until the process is told to stop.

        Raises:
            SystemExit: they do not start, or end again and again; the log says why.
        """
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        before = {number: signal.signal(number, self._hear) for number in numbers}
        try:
            _log.info("starting %d workers", self._count)
            self._workers = [self._start() for _ in range(self._count)]
            while not self._is_told_to_stop:
                self._wait()
                if signal.SIGHUP in self._told:
                    self._told.remove(signal.SIGHUP)
                    self._replace_all()
                for worker in self._workers:
                    if not worker.process.is_alive():
                        self._restart(worker)
        finally:
            self._stop_all()
            for number, handler in before.items():
                signal.signal(number, handler)

    @property
    def _is_told_to_stop(self) -> bool:
        return not {signal.SIGTERM, signal.SIGINT}.isdisjoint(self._told)

    def _hear(self, number: int, _frame: Any) -> None:
        self._told.append(number)
        self._says.send(b"1")

    def _wait(self) -> None:
        wait([self._hears, *(worker.process.sentinel for worker in self._workers)])
        with suppress(BlockingIOError):
            self._hears.recv(64)

    def _start(self) -> _Worker:
        return _Worker(self._serve, self._sockets)

    def _restart(self, worker: _Worker) -> None:
        code, lived = worker.process.exitcode, time.monotonic() - worker.began
        _log.error("worker %s has ended (exit code %s)", worker.process.pid, code)
        self._failures = self._failures + 1 if lived < _STEADY_SECONDS else 0
        if self._failures >= _MOST_FAILURES or not worker.serves():
            _log.critical("stopping: the workers do not stay up")
            sys.exit(1)
        time.sleep(_PAUSE_SECONDS if self._failures else 0)
        worker.forget()
        self._workers[self._workers.index(worker)] = self._start()

    def _replace_all(self) -> None:
        """Let a new worker serve before each old one stops: nobody finds the port closed."""
        for place, old in enumerate(self._workers):
            new, until = self._start(), time.monotonic() + _START_SECONDS
            while new.serves(0.2) is None and time.monotonic() < until:
                if self._is_told_to_stop:
                    break
            if not new.serves():
                _log.error("a new worker does not start; worker %s goes on", old.process.pid)
                new.stop()
                new.forget()
                return
            _log.info("worker %s replaces %s", new.process.pid, old.process.pid)
            self._workers[place] = new
            old.stop()
            old.forget()

    def _stop_all(self) -> None:
        for worker in self._workers:
            worker.stop()
        heard = len(self._told)
        while any(worker.process.is_alive() for worker in self._workers):
            wait([self._hears, *(each.process.sentinel for each in self._workers)], 1.0)
            if len(self._told) > heard:  # a second signal: they exit at once
                heard = len(self._told)
                for worker in self._workers:
                    worker.stop()
        for worker in self._workers:
            worker.forget()
