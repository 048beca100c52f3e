"""The locks on a database file, under whatever name: one server per swarm, or one for the file."""

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

# Of an open file description: a lock of the process would be lost to SQLite's own descriptors.
_TAKE: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)
_ASK: Final[int | None] = getattr(fcntl, "F_OFD_GETLK", None)
_BYTE: Final = 2**62  # far behind the bytes at 2**30 that SQLite locks, and behind any data
_SWARMS: Final = 2**40  # as many bytes after it stand for swarms

_STARTING: Final = "starting"
_PATIENCE_SECONDS: Final = 15.0
"""How long a starting owner waits for others that start at the same moment."""
_GLANCE_SECONDS: Final = 0.5
"""How long somebody may look at a lock file at most."""
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
    other swarms. Each of these locks is two: one on a lock file beside the database, which names
    the process, and one on a byte of the database itself, which holds when the lock file is gone
    or the database has moved. Lock files stay, because removing one would let two processes lock
    two different files. Where the system or the file system has no locks on bytes of that kind,
    the lock files are all there is.

    Args:
        database: The file, without symbolic links.
        swarm: The swarm to own; None for the whole file.
    """

    def __init__(self, database: Path, swarm: str | None = None) -> None:
        self._database = database
        self._swarm = swarm
        self._file: int | None = None  # the lock file's descriptor
        self._bytes: int | None = None  # the database's
        self._swarms: dict[str, int] = {}
        self.alone = False

    def acquire(self) -> None:
        """Take the lock; a missing database is made, empty and private.

        `alone` tells then whether nobody else owns any of the file, and nobody can until `share`.

        Raises:
            StoreLocked: somebody else holds it; the text names the process, if it is known.
            StoreError: a lock file or the database cannot be made.
        """
        if self._database.is_dir():
            raise StoreError(f"{self._database} is a folder; name a file for the database")
        self._check_from_here()
        self._file = _open_lock_file(_lock_path(self._database))
        try:
            self._bytes = self._open_database()
            self._take_file()
            if self._swarm is not None:
                self.claim(self._swarm)
        except BaseException:
            self.release()
            raise

    def share(self) -> None:
        """Let owners of other swarms in; does nothing for an owner of the whole file.

        Raises:
            StoreLocked: an owner of the whole file was faster.
        """
        if self._swarm is None or not self.alone or self._file is None:
            return
        self.alone = False
        os.ftruncate(self._file, 0)
        # The byte first: it changes without a moment in between, which the lock file may have.
        self._lock_byte(fcntl.F_RDLCK, _BYTE)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not _lock_file(self._file, shared=True):
            self._wait(deadline)

    def claim(self, swarm: str) -> None:
        """Own one more swarm; does nothing for an owner of the whole file.

        Raises:
            StoreLocked: somebody else has it; nothing is lost over that.
        """
        if self._swarm is None or swarm in self._swarms:
            return
        handle = _open_lock_file(_lock_path(self._database, swarm))
        deadline = time.monotonic() + _GLANCE_SECONDS
        while not _lock_file(handle, shared=False):
            # Without a name it is somebody who only looks, or has not written the name yet.
            if _read_name(handle) is None and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
                continue
            holder = _named(handle)
            os.close(handle)
            raise self._refusal(User(holder, swarm))
        if not self._lock_byte(fcntl.F_WRLCK, _byte_of(swarm)):
            os.close(handle)
            raise self._refusal(User("another process", swarm))
        _write_name(handle, swarm)
        self._swarms[swarm] = handle

    def others(self) -> list[User]:
        """Return who else owns something of the file. Call it only while it is shared."""
        return [user for user in _swarm_users(self._database) if user.swarm not in self._swarms]

    def release(self) -> None:
        """Give the lock back, after SQLite closed the file; does nothing when it is not held."""
        database, self._bytes = self._bytes, None
        if database is not None:
            _close(database)
        named = [*self._swarms.values()]
        if self._file is not None:
            if self.alone:
                named.append(self._file)
            else:
                os.close(self._file)
        for handle in named:
            os.ftruncate(handle, 0)
            os.close(handle)
        self._file, self._swarms, self.alone = None, {}, False

    def _check_from_here(self) -> None:
        """Refuse what would be refused before anything is opened, if the database is open here.

        In this process no further descriptor of it could be closed then.
        """
        if not _open_on(self._database):
            return
        holder = _holder(_lock_path(self._database))
        if holder is not None and holder.swarm == _STARTING:
            return
        for user in users_of(self._database, self._swarm or ""):
            if self._swarm is None or user.swarm in (None, self._swarm):
                raise self._refusal(user)

    def _take_file(self) -> None:
        """Lock the file for this process alone, or with others if it only wants a swarm."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self._try_file():
            self._wait(deadline)

    def _try_file(self) -> bool:
        assert self._file is not None  # noqa: S101 - see `acquire`
        if _lock_file(self._file, shared=False):
            if self._lock_byte(fcntl.F_WRLCK, _BYTE):
                _write_name(self._file, "" if self._swarm is None else _STARTING)
                self.alone = True
                return True
            if self._swarm is None:
                raise self._refusal(User("another process", None))
        if self._swarm is None:
            return False
        if not _lock_file(self._file, shared=True):
            return False
        if not self._lock_byte(fcntl.F_RDLCK, _BYTE):
            raise self._refusal(User("another process", None))
        return True

    def _wait(self, deadline: float) -> None:
        """Wait for a moment if whoever has the file only starts; it is going to share the file.

        Raises:
            StoreLocked: it does not.
        """
        assert self._file is not None  # noqa: S101 - see `acquire`
        users = _swarm_users(self._database) if self._swarm is None else []
        name = _read_name(self._file)
        if users:
            raise self._refusal(users[0])
        if name not in (None, _STARTING) or time.monotonic() >= deadline:
            raise self._refusal(User(_named(self._file), None))
        time.sleep(_POLL_SECONDS)

    def _open_database(self) -> int:
        try:
            return os.open(self._database, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as exc:
            reason = exc.strerror
            raise StoreError(f"cannot create the database {self._database}: {reason}") from exc

    def _lock_byte(self, kind: int, byte: int) -> bool:
        """Lock a byte of the database; True, too, where there are no such locks."""
        assert self._bytes is not None  # noqa: S101 - see `acquire`
        if _TAKE is None:
            return True
        try:
            fcntl.fcntl(self._bytes, _TAKE, _record(kind, byte))
        except (BlockingIOError, PermissionError):
            return False
        except OSError:
            _logger.debug("%s: the file system has no locks of this kind", self._database)
        return True

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

    It is a lock on a byte of the lock file: whoever waits holds it. Without a lock file, and where
    there are no such locks, nobody is known to wait, which costs no more than fairness.
    """

    def __init__(self, database: Path) -> None:
        self._handle: int | None = None
        if _TAKE is not None:
            with suppress(OSError):
                self._handle = os.open(_lock_path(database), os.O_RDWR)

    def __enter__(self) -> None:
        """Say that this process waits, unless another one does."""
        self._set(fcntl.F_WRLCK)

    def __exit__(self, *_: object) -> None:
        """Say that it waits no more."""
        self._set(fcntl.F_UNLCK)

    def waiting(self) -> bool:
        """Tell whether another process waits."""
        return self._handle is not None and _is_held(self._handle, _BYTE)

    def close(self) -> None:
        """Wait no more, and close the lock file."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def _set(self, kind: int) -> None:
        if _TAKE is not None and self._handle is not None:
            with suppress(OSError):
                fcntl.fcntl(self._handle, _TAKE, _record(kind, _BYTE))


def users_of(database: Path, swarm: str) -> list[User]:
    """Return who owns a database, or swarms in it; nothing is made or changed.

    For an instant the lock files' locks are shared.

    Args:
        database: The file, without symbolic links.
        swarm: A swarm whose owner is found without its lock file, too.

    Raises:
        StoreError: a lock file or the database cannot be read.
    """
    holder = _holder(_lock_path(database))
    if holder is not None:
        return [holder._replace(swarm=None)]
    users = _swarm_users(database)
    if all(user.swarm != swarm for user in users) and _is_locked(database, _byte_of(swarm)):
        users.append(User("another process", swarm))
    if not users and _is_locked(database, _BYTE):
        users.append(User("another process", None))
    return users


def _lock_path(database: Path, swarm: str | None = None) -> Path:
    """Return the lock file of a database, or that of a swarm in it."""
    if swarm is None:
        return database.with_name(f"{database.name}{_ENDING}")
    plain = re.sub(r"[^a-z0-9-]+", "_", swarm)[:_LONGEST_NAME]
    if plain != swarm:  # not every file system tells capitals from small letters
        plain = f"{plain}-{hashlib.sha256(swarm.encode()).hexdigest()[:8]}"
    return database.with_name(f"{database.name}{_ENDING}-{plain}")


def _byte_of(swarm: str) -> int:
    number = int.from_bytes(hashlib.sha256(swarm.encode()).digest()[:8], "big")
    return _BYTE + 1 + number % _SWARMS


def _open_lock_file(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError as exc:
        folder = path.parent
        raise StoreError(f"the folder {folder} for the database does not exist; create it") from exc
    except OSError as exc:
        raise StoreError(f"cannot create the lock file {path}: {exc.strerror}") from exc


def _lock_file(handle: int, *, shared: bool) -> bool:
    """Take the lock on a lock file, or say that this is not possible now.

    A lock that this descriptor had before may be lost then.
    """
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _write_name(handle: int, word: str) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()} {word}".encode().rstrip() + b"\n", 0)


def _read(handle: int) -> tuple[str, str]:
    """Return the pid in a lock file and the word behind it; empty if they are not there."""
    text = os.pread(handle, 4096, 0).decode("utf-8", "replace").strip()
    pid, _, word = text.partition(" ")
    return pid, word


def _read_name(handle: int) -> str | None:
    """Return the word in a lock file, which may be empty; None when it names nobody."""
    pid, word = _read(handle)
    return word if pid else None


def _named(handle: int) -> str:
    """Return words about the process that an open lock file names."""
    return f"the process with pid {_read(handle)[0] or 'unknown'}"


def _holder(path: Path) -> User | None:
    """Return who has the lock on a lock file for himself."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise StoreError(f"cannot read the lock file {path}: {exc.strerror}") from exc
    try:
        if _lock_file(handle, shared=True):
            return None
        return User(_named(handle), _read_name(handle))
    finally:
        os.close(handle)


def _swarm_users(database: Path) -> list[User]:
    """Return the owners of swarms that the lock files name."""
    start = f"{database.name}{_ENDING}-"
    paths = sorted(path for path in database.parent.iterdir() if path.name.startswith(start))
    return [user for path in paths if (user := _holder(path)) is not None]


def _is_locked(database: Path, byte: int) -> bool:
    """Tell whether somebody has a lock on a byte of a database."""
    if handles := _open_on(database):  # the descriptor that has the lock does not find it
        return any(_is_held(handle, byte) for handle in handles)
    try:
        handle = os.open(database, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise StoreError(f"cannot read {database}: {exc.strerror}") from exc
    try:
        return _is_held(handle, byte)
    finally:
        _close(handle)


def _is_held(handle: int, byte: int) -> bool:
    """Tell whether anybody but this open file description has a lock on a byte."""
    if _ASK is None:
        return False
    try:
        answer = fcntl.fcntl(handle, _ASK, _record(fcntl.F_WRLCK, byte))
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
        if _TAKE is not None:
            fcntl.fcntl(handle, _TAKE, _record(fcntl.F_UNLCK, _BYTE, 0))
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
    handles = [int(entry.name) for entry in Path("/dev/fd").iterdir()]
    return [handle for handle in handles if _is_open_on(handle, file)]


def _is_open_on(handle: int, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), file)
    except OSError:  # the descriptor of the list itself, by now
        return False
