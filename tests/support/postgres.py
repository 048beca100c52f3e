"""A throw-away PostgreSQL: a cluster of its own, in a temporary folder, as an unprivileged user."""

import asyncio
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import asyncpg
import psutil

from scripts.ports import free_port
from tests.support.debian import install

PASSWORD: Final = "pg-secret-Wk58Rt21"
_USER: Final = "mail"
_VERSION: Final = 15
_INSTALLED: Final = Path("/usr/lib/postgresql")
_SECONDS: Final = 60.0
_UNPRIVILEGED: Final = ("postgres", "nobody")
_numbers = itertools.count(1)


class Unavailable(Exception):
    """There is no PostgreSQL here, and none can be installed; the text says why."""


class Cluster:
    """A server; tests kill processes, not machines, and need no fsync.

    Its ``data``, and the ``log`` of what it commits, may be in other folders than its own. It may
    be the standby of a ``primary``, whose settings it does not take over.
    """

    def __init__(
        self,
        *settings: str,
        fsync: bool = False,
        data: Path | None = None,
        log: Path | None = None,
        primary: "Cluster | None" = None,
    ) -> None:
        self._settings = [f"fsync={'on' if fsync else 'off'}", *settings]
        self._bin = find_binaries()
        self._account = account_of_servers()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        # Not below pytest's own folder: that one is closed to other users.
        self.folder = Path(tempfile.mkdtemp(prefix="mail-postgres-"))
        self._data = (data or self.folder) / "data"
        try:
            self._initialise(log, primary)
        except BaseException:
            self.remove()
            raise

    def start(self) -> None:
        """Start the server and wait until it answers."""
        log = (self.folder / "server.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [
                    str(self._bin / "postgres"),
                    *(
                        "-D",
                        str(self._data),
                        "-p",
                        str(self.port),
                    ),
                    *(part for setting in self._settings for part in ("-c", setting)),
                    *("-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"),
                    *("-c", f"unix_socket_directories={self.folder}"),
                ],
                stdout=log,
                stderr=log,
                **self._account,
            )
        deadline = time.monotonic() + _SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"PostgreSQL does not start:\n{self._log()}")
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT at once and in good order, SIGQUIT as a crash does."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(_SECONDS)

    def revive(self) -> None:
        """Wait until the server answers; start it again if it ended by itself."""
        deadline = time.monotonic() + _SECONDS
        while not self._answers():
            if self._process is None or self._process.poll() is not None:
                self.start()
            if time.monotonic() > deadline:
                raise Unavailable(f"PostgreSQL does not come back:\n{self._log()}")
            time.sleep(0.05)

    def use_up_log(self) -> None:
        """Begin one file of the log after the other, until there is no room and the server dies."""
        with suppress(OSError, asyncpg.PostgresError):
            while True:
                run_async(self._execute("SELECT pg_switch_wal()"))

    def promote(self) -> None:
        """Let a standby take writes, from now on; it needs its primary no more."""
        run_async(self._execute("SELECT pg_promote()"))

    def freeze(self, *, whole: bool = True) -> None:
        """Let the server answer nobody, connected or not; with ``whole`` false only newcomers."""
        for process in self._processes() if whole else self._processes()[:1]:
            process.suspend()

    def thaw(self) -> None:
        """Let a frozen server go on."""
        for process in reversed(self._processes()):
            with suppress(psutil.NoSuchProcess):  # it ends by itself
                process.resume()

    def remove(self) -> None:
        """Stop the server and delete everything."""
        self.thaw()
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _processes(self) -> list[psutil.Process]:
        """Return the server's processes, the one that takes connections first."""
        if self._process is None or self._process.poll() is not None:
            return []
        first = psutil.Process(self._process.pid)
        return [first, *first.children(recursive=True)]

    def dsn(self) -> str:
        """Make an empty database and return its URL."""
        name = f"test_{next(_numbers)}"
        run_async(self._execute(f"CREATE DATABASE {name}"))
        return self.url(name)

    def schema(self) -> str:
        """Make an empty schema and return the URL that leads to it: faster than a database."""
        name = f"test_{next(_numbers)}"
        run_async(self._execute(f"CREATE SCHEMA {name}"))
        return f"{self.url('postgres')}?search_path={name}"

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://{_USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self.url("postgres"))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    def _answers(self) -> bool:
        try:
            run_async(self._execute("SELECT 1"))
        except (OSError, asyncpg.CannotConnectNowError):
            return False
        return True

    def _initialise(self, log: Path | None, primary: "Cluster | None") -> None:
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        for path in filter(None, (self.folder, secret, self._data.parent, log)):
            os.chown(path, self._account.get("user", -1), self._account.get("group", -1))
        if primary is None:
            made = self._run(
                *("initdb", "-D", str(self._data), "-U", _USER, "--auth=scram-sha-256"),
                *(f"--pwfile={secret}", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"),
                *((f"--waldir={log / 'wal'}", "--wal-segsize=1") if log else ()),
            )
        else:
            made = self._run(
                *("pg_basebackup", "-D", str(self._data), "-d", primary.url("postgres")),
                *("--checkpoint=fast", "--no-sync", "--write-recovery-conf"),
            )
        if made.returncode != 0:
            raise Unavailable(f"no folder of PostgreSQL:\n{made.stdout}{made.stderr}")

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._bin / program), *arguments],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            **self._account,
        )

    def _log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")[-4000:]


def find_binaries() -> Path:
    """Return the folder with ``initdb`` and ``postgres``; install Debian's package if need be.

    Raises:
        Unavailable: there is none, and it cannot be installed.
    """
    found = _found()
    if found is None:
        reason = install(f"postgresql-{_VERSION}", _found)
        found = _found()
        if found is None:
            raise Unavailable(
                "these tests need PostgreSQL: install it (Debian: apt-get install "
                f"postgresql-{_VERSION}) or put initdb and postgres on the PATH; {reason}"
            )
    return found


def _found() -> Path | None:
    on_path = shutil.which("initdb")
    candidates = [Path(on_path).resolve().parent] if on_path else []
    versions = [path for path in _INSTALLED.glob("*") if path.name.isdigit()]
    newest = sorted(versions, key=lambda path: int(path.name), reverse=True)
    candidates += [path / "bin" for path in newest]
    usable = (path for path in candidates if (path / "postgres").exists())
    return next(usable, None)


def account_of_servers() -> dict[str, Any]:
    """Return how subprocess runs a command as an unprivileged user; root may not run the server."""
    if os.geteuid() != 0:
        return {}
    for name in _UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise Unavailable("root may not run PostgreSQL, and there is no user postgres or nobody")


def run_async(coroutine: Any) -> Any:
    """Run a coroutine in a thread's own loop, so that it works with and without one here."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def query(dsn: str, statement: str, *values: Any) -> list[Any]:
    """Return a statement's rows as tuples."""

    async def work() -> list[Any]:
        connection = await asyncpg.connect(dsn)
        try:
            return [tuple(row) for row in await connection.fetch(statement, *values)]
        finally:
            await connection.close()

    found: list[Any] = run_async(work())
    return found


def execute(dsn: str, script: str) -> None:
    """Run a script."""

    async def work() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(script)
        finally:
            await connection.close()

    run_async(work())
