"""The locks that let one process at a time own a database file, under whatever name."""

import fcntl
import logging
import os
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from mail.errors import StoreError, StoreLocked

__all__ = ["LockFile"]

_logger = logging.getLogger(__name__)

# Of an open file description: a lock of the process would be lost to SQLite's own descriptors.
_TAKE: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)
_ASK: Final[int | None] = getattr(fcntl, "F_OFD_GETLK", None)
_BYTE: Final = 2**62  # far behind the bytes at 2**30 that SQLite locks, and behind any data


class LockFile:
    """An exclusive lock on a database, held until `release` or the end of the process.

    It is two locks. The lock file beside the database names the holder; it stays, because removing
    it would let two processes lock two different files. The lock on the database itself holds when
    the lock file is gone, or the database has moved. Where the system or the file system has no
    locks of that kind, the lock file is all there is.
    """

    def __init__(self, guarded: Path) -> None:
        self.path = guarded.with_name(guarded.name + ".lock")
        self._guarded = guarded
        self._handle: int | None = None
        self._database: int | None = None

    def acquire(self) -> None:
        """Take the lock without waiting; a missing database is made, empty and private.

        Raises:
            StoreLocked: somebody holds it; the text names the process, if it is known.
            StoreError: the lock file or the database cannot be made.
        """
        if self._guarded.is_dir():
            raise StoreError(f"{self._guarded} is a folder; name a file for the database")
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError as exc:
            folder = self.path.parent
            raise StoreError(
                f"the folder {folder} for the database does not exist; create it"
            ) from exc
        except OSError as exc:
            raise StoreError(f"cannot create the lock file {self.path}: {exc.strerror}") from exc
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            holder = _named(handle)
            os.close(handle)
            raise self._refusal(holder) from exc
        try:
            self._database = self._lock_database()
        except BaseException:
            os.close(handle)
            raise
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self._handle = handle

    def holder(self) -> str | None:
        """Return words about the process that holds the lock, None when nobody does.

        Nothing is made or changed; for an instant the lock file's lock is shared.

        Raises:
            StoreError: the lock file or the database cannot be read.
        """
        try:
            handle = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return self._database_holder()
        except OSError as exc:
            raise StoreError(f"cannot read the lock file {self.path}: {exc.strerror}") from exc
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return _named(handle)
        finally:
            os.close(handle)
        return self._database_holder()

    def release(self) -> None:
        """Give the lock back, after SQLite closed the file; does nothing when it is not held."""
        handle, self._handle = self._handle, None
        database, self._database = self._database, None
        if database is not None:
            _close(database)
        if handle is not None:
            os.ftruncate(handle, 0)
            os.close(handle)

    def _lock_database(self) -> int:
        try:
            handle = os.open(self._guarded, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as exc:
            raise StoreError(f"cannot create the database {self._guarded}: {exc.strerror}") from exc
        try:
            if _TAKE is not None:
                fcntl.fcntl(handle, _TAKE, _record(fcntl.F_WRLCK))
        except (BlockingIOError, PermissionError) as exc:
            _close(handle)
            raise self._refusal("another process") from exc
        except OSError:
            _logger.debug("%s: the file system has no locks of this kind", self._guarded)
        return handle

    def _database_holder(self) -> str | None:
        if _ASK is None:
            return None
        try:
            handle = os.open(self._guarded, os.O_RDWR)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise StoreError(f"cannot read {self._guarded}: {exc.strerror}") from exc
        try:
            free = fcntl.fcntl(handle, _ASK, _record(fcntl.F_WRLCK)) == _record(fcntl.F_UNLCK)
        except OSError:
            free = True  # no locks of that kind here
        finally:
            _close(handle)
        return None if free else "another process"

    def _refusal(self, holder: str) -> StoreLocked:
        return StoreLocked(
            f"{self._guarded} is in use by {holder}; stop it, or name another database file"
        )


def _named(handle: int) -> str:
    """Return words about the process that an open lock file names."""
    pid = os.pread(handle, 32, 0).decode("ascii", "replace").strip() or "unknown"
    return f"the process with pid {pid}"


def _record(kind: int) -> bytes:
    """Return the ``struct flock`` of our byte."""
    if sys.platform == "darwin":
        return struct.pack("qqihh", _BYTE, 1, 0, kind, os.SEEK_SET)
    return struct.pack("hhqqhh", kind, os.SEEK_SET, _BYTE, 1, 0, 0)


def _close(handle: int) -> None:
    """Unlock and close a descriptor of a database.

    Where the process has the file open elsewhere it is only unlocked: closing any descriptor of a
    file would drop the locks on it that SQLite holds in this process.
    """
    with suppress(OSError):
        if _TAKE is not None:
            fcntl.fcntl(handle, _TAKE, _record(fcntl.F_UNLCK))
    file = os.fstat(handle)
    with suppress(OSError):  # a system that does not list them: it stays
        handles = [int(entry.name) for entry in Path("/dev/fd").iterdir()]
        if not any(other != handle and _is_open_on(other, file) for other in handles):
            os.close(handle)


def _is_open_on(handle: int, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), file)
    except OSError:  # the descriptor of the list itself, by now
        return False
