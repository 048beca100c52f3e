"""The lock file that lets one process at a time own a database file."""

import fcntl
import os
from pathlib import Path

from mail.errors import StoreError, StoreLocked

__all__ = ["LockFile"]


class LockFile:
    """An exclusive lock beside a file, held until `release` or the end of the process.

    The file itself stays: removing it would let two processes lock two different files.
    """

    def __init__(self, guarded: Path) -> None:
        self.path = guarded.with_name(guarded.name + ".lock")
        self._guarded = guarded
        self._handle: int | None = None

    def acquire(self) -> None:
        """Take the lock without waiting.

        Raises:
            StoreLocked: somebody holds it; the text names the process.
            StoreError: the lock file cannot be made.
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
            holder = os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(handle)
            raise StoreLocked(
                f"{self._guarded} is in use by the process with pid {holder}; "
                "stop it, or name another database file"
            ) from exc
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self._handle = handle

    def holder(self) -> str | None:
        """Return the pid of the process that holds the lock, None when nobody does.

        Nothing is made or changed; for an instant the lock is shared.

        Raises:
            StoreError: the lock file cannot be read.
        """
        try:
            handle = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise StoreError(f"cannot read the lock file {self.path}: {exc.strerror}") from exc
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
        finally:
            os.close(handle)
        return None

    def release(self) -> None:
        """Give the lock back; does nothing when it is not held."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.ftruncate(handle, 0)
            os.close(handle)
