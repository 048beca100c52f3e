"""The locks on a database file, under whatever name: one server per swarm, or one for the file.

They are locks on bytes of the database itself, far behind its data, which hold whatever is done to
other files and to its names. Who has them is told by files beside it, which nothing depends on.
"""

import fcntl
import hashlib
import logging
import os
import re
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from mail.errors import StoreError, StoreLocked

_logger = logging.getLogger(__name__)

# Locks of an open file description: a lock of the process would be lost to SQLite's own
# descriptors. Where there are none, those of the process are taken on a file beside the database.
_OF_DESCRIPTIONS: Final = hasattr(fcntl, "F_OFD_SETLK")
_TAKE: Final[int] = getattr(fcntl, "F_OFD_SETLK", fcntl.F_SETLK)
_ASK: Final[int] = getattr(fcntl, "F_OFD_GETLK", fcntl.F_GETLK)

_WHOLE: Final = 2**62  # far behind the bytes at 2**30 that SQLite locks, and behind any data
"""Locked by whoever owns the whole file, and shared by the owners of swarms."""
_START: Final = _WHOLE - 1
"""Locked by an owner that starts."""
_SWARMS: Final = 2**40
"""So many bytes behind `_WHOLE` stand for swarms."""

_PATIENCE_SECONDS: Final = 15.0
"""The wait of a starting owner for others that start at the same moment."""
_POLL_SECONDS: Final = 0.02
_LONGEST_NAME: Final = 48
_ENDING: Final = ".lock"


class User(NamedTuple):
    """Somebody who has a database open as an owner.

    Attributes:
        process: Words about the process.
        swarm: The swarm it serves; None when it has the file to itself.
    """

    process: str
    swarm: str | None

    def __str__(self) -> str:
        """Return words for a message."""
        return self.process if self.swarm is None else f"{self.process} (swarm '{self.swarm}')"


class DatabaseLock:
    """An owner's lock on a database, held until `release` or the end of the process.

    An owner has the whole file, or certain swarms in it and shares the file with the owners of
    other swarms.

    Args:
        database: The file, without symbolic links.
        swarm: The swarm to own; None for the whole file.
    """

    def __init__(self, database: Path, swarm: str | None = None) -> None:
        self._database = database
        self._swarm = swarm
        self._handle: int | None = None
        self._names: dict[str | None, Path] = {}  # of the file or of swarms: who has them
        self.alone = False

    def acquire(self) -> None:
        """Take the lock; a missing database is made, empty and private.

        `alone` tells then whether nobody else owns any of the file, and nobody can until `share`.

        Raises:
            StoreLocked: somebody else holds it; the text names the process, if it is known.
            StoreError: the database cannot be made.
        """
        if self._database.is_dir():
            raise StoreError(f"{self._database} is a folder; name a file for the database")
        self._check_from_here()
        self._handle = _open(_locked_file(self._database))
        try:
            self._take_file(self._handle)
            os.close(_open(_name_file(self._database)))
            if self._swarm is None:
                self._write_name(None)
            else:
                self.claim(self._swarm)
        except BaseException:
            self.release()
            raise

    def _take_file(self, handle: int) -> None:
        """Lock the file for this owner alone, or with others if it only wants a swarm."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not _set(handle, fcntl.F_WRLCK, _START):
            if time.monotonic() >= deadline:
                raise self._refusal(User("another process, which starts", None))
            time.sleep(_POLL_SECONDS)
        self.alone = _set(handle, fcntl.F_WRLCK, _WHOLE)
        if self.alone:
            return
        if self._swarm is None or not _set(handle, fcntl.F_RDLCK, _WHOLE):
            users = users_of(self._database, self._swarm or "")
            raise self._refusal(next(iter(users), User("another process", None)))
        _set(handle, fcntl.F_UNLCK, _START)

    def share(self) -> None:
        """Let other owners start, and those of other swarms in."""
        if self._handle is not None and self.alone:
            if self._swarm is not None:
                self.alone = False
                _set(self._handle, fcntl.F_RDLCK, _WHOLE)
            _set(self._handle, fcntl.F_UNLCK, _START)

    def claim(self, swarm: str) -> None:
        """Own one more swarm; does nothing for an owner of the whole file.

        Raises:
            StoreLocked: somebody else has it; nothing is lost over that.
        """
        if self._swarm is None or swarm in self._names or self._handle is None:
            return
        if not _set(self._handle, fcntl.F_WRLCK, _byte_of(swarm)):
            raise self._refusal(User(_named(_name_file(self._database, swarm)), swarm))
        self._write_name(swarm)

    def others(self) -> list[User]:
        """Return who else owns something of the file. Call it only while it is shared."""
        return [user for user in _swarm_users(self._database) if user.swarm not in self._names]

    def release(self) -> None:
        """Give the lock back, after SQLite closed the file; does nothing when it is not held."""
        for path in self._names.values():
            with suppress(OSError):
                os.truncate(path, 0)
        handle, self._handle = self._handle, None
        if handle is not None:
            _close(handle)
        self._names, self.alone = {}, False

    def _check_from_here(self) -> None:
        """Refuse what would be refused before anything is opened, if the database is open here.

        In this process no further descriptor of it could be closed then.
        """
        if not _open_on(self._database) or _is_locked(self._database, _START):
            return
        for user in users_of(self._database, self._swarm or ""):
            if self._swarm is None or user.swarm in (None, self._swarm):
                raise self._refusal(user)

    def _write_name(self, swarm: str | None) -> None:
        path = self._names[swarm] = _name_file(self._database, swarm)
        handle = _open(path)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()} {swarm or ''}".encode().rstrip() + b"\n", 0)
        os.close(handle)

    def _refusal(self, user: User) -> StoreLocked:
        if user.swarm is not None and self._swarm is not None:
            return StoreLocked(
                f"swarm '{user.swarm}' in {self._database} is in use by {user.process}; stop it, "
                "or name another swarm or another database file"
            )
        return StoreLocked(
            f"{self._database} is in use by {user}; stop it, or name another database file"
        )


class WriteQueue:
    """A queue of processes that want to write to a database: one waits at a time, by its word.

    It is a lock on a byte of a file beside the database: whoever waits holds it. Without that file,
    and where there are no such locks, nobody is known to wait, which costs no more than fairness.
    """

    def __init__(self, database: Path) -> None:
        self._handle: int | None = None
        if _OF_DESCRIPTIONS:
            with suppress(OSError):
                self._handle = os.open(_name_file(database), os.O_RDWR)

    def __enter__(self) -> None:
        """Say that this process waits, unless another one does."""
        if self._handle is not None:
            _set(self._handle, fcntl.F_WRLCK, _WHOLE)

    def __exit__(self, *_: object) -> None:
        """Say that it waits no more."""
        if self._handle is not None:
            _set(self._handle, fcntl.F_UNLCK, _WHOLE)

    def waiting(self) -> bool:
        """Tell whether another process waits."""
        return self._handle is not None and _is_held(self._handle, _WHOLE)

    def close(self) -> None:
        """Wait no more, and close the file."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


def users_of(database: Path, swarm: str) -> list[User]:
    """Return who owns a database, or swarms in it; nothing is made or changed.

    Args:
        database: The file, without symbolic links.
        swarm: A swarm whose owner is found also when no file names it.

    Raises:
        StoreError: the database cannot be read.
    """
    if _is_locked(database, _WHOLE, fcntl.F_RDLCK):  # and not only shared
        return [User(_named(_name_file(database)), None)]
    users = _swarm_users(database)
    if all(user.swarm != swarm for user in users) and _is_locked(database, _byte_of(swarm)):
        users.append(User("another process", swarm))
    if not users and _is_locked(database, _WHOLE):
        users.append(User("another process", None))
    return users


def _swarm_users(database: Path) -> list[User]:
    """Return the owners of swarms that files beside the database name."""
    start = f"{database.name}{_ENDING}-"
    users = []
    for path in sorted(path for path in database.parent.iterdir() if path.name.startswith(start)):
        swarm = _read(path)[1]
        if swarm and _is_locked(database, _byte_of(swarm)):
            users.append(User(_named(path), swarm))
    return users


def _name_file(database: Path, swarm: str | None = None) -> Path:
    """Return the file that names the owner of a database, or of a swarm in it."""
    if swarm is None:
        return database.with_name(f"{database.name}{_ENDING}")
    plain = re.sub(r"[^a-z0-9-]+", "_", swarm)[:_LONGEST_NAME]
    if plain != swarm:  # not every file system tells capitals from small letters
        plain = f"{plain}-{hashlib.sha256(swarm.encode()).hexdigest()[:8]}"
    return database.with_name(f"{database.name}{_ENDING}-{plain}")


def _read(path: Path) -> tuple[str, str]:
    """Return the pid and the swarm that a file names; no texts where it names nobody."""
    try:
        pid, _, swarm = path.read_text("utf-8", "replace").strip().partition(" ")
    except FileNotFoundError:
        return "", ""
    except OSError as exc:
        raise StoreError(f"cannot read the lock file {path}: {exc.strerror}") from exc
    return pid, swarm


def _named(path: Path) -> str:
    """Return words about the process that a file names."""
    pid, _ = _read(path)
    return f"the process with pid {pid}" if pid else "another process"


def _byte_of(swarm: str) -> int:
    number = int.from_bytes(hashlib.sha256(swarm.encode()).digest()[:8], "big")
    return _WHOLE + 1 + number % _SWARMS


def _locked_file(database: Path) -> Path:
    return database if _OF_DESCRIPTIONS else _name_file(database)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError as exc:
        folder = path.parent
        raise StoreError(f"the folder {folder} for the database does not exist; create it") from exc
    except OSError as exc:
        raise StoreError(f"cannot create {path}: {exc.strerror}") from exc


def _set(handle: int, kind: int, byte: int) -> bool:
    """Lock or unlock a byte, or say that somebody else has it.

    True, too, where the file system has no such locks: SQLite itself would not work there.
    """
    try:
        fcntl.fcntl(handle, _TAKE, _record(kind, byte))
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        _logger.debug("the file system has no locks on bytes")
    return True


def _is_locked(database: Path, byte: int, kind: int = fcntl.F_WRLCK) -> bool:
    """Tell whether somebody has a lock on a byte of a database that keeps others from one."""
    path = _locked_file(database)
    if handles := _open_on(path):  # the descriptor that has the lock does not find it
        return any(_is_held(handle, byte, kind) for handle in handles)
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise StoreError(f"cannot read {path}: {exc.strerror}") from exc
    try:
        return _is_held(handle, byte, kind)
    finally:
        _close(handle)


def _is_held(handle: int, byte: int, kind: int = fcntl.F_WRLCK) -> bool:
    """Tell whether anybody but this open file description has a lock on a byte."""
    try:
        answer = fcntl.fcntl(handle, _ASK, _record(kind, byte))
    except OSError:
        return False  # no locks of that kind here
    return answer != _record(fcntl.F_UNLCK, byte)


def _record(kind: int, byte: int, count: int = 1) -> bytes:
    """Return the ``struct flock`` of some bytes, all from there on if the count is 0."""
    if sys.platform == "darwin":
        return struct.pack("qqihh", byte, count, 0, kind, os.SEEK_SET)
    return struct.pack("hhqqhh", kind, os.SEEK_SET, byte, count, 0, 0)


def _close(handle: int) -> None:
    """Unlock and close a descriptor of a database.

    Where the process has the file open elsewhere it is only unlocked: closing any descriptor of a
    file would drop the locks on it that SQLite holds in this process.
    """
    with suppress(OSError):
        fcntl.fcntl(handle, _TAKE, _record(fcntl.F_UNLCK, _START, 0))
    with suppress(OSError):  # a system that does not list them: it stays
        if _descriptors_of(os.fstat(handle)) == [handle]:
            os.close(handle)


def _open_on(path: Path) -> list[int]:
    """Return the descriptors that this process has of a file."""
    try:
        return _descriptors_of(path.stat())
    except OSError:  # there is no such file, or no such list
        return []


def _descriptors_of(file: os.stat_result) -> list[int]:
    handles = []
    for entry in Path("/dev/fd").iterdir():
        with suppress(OSError):  # the descriptor of the list itself, by now
            if os.path.samestat(os.fstat(int(entry.name)), file):
                handles.append(int(entry.name))
    return handles
