"""The bytes of files, each content once under its sha256. What is told of files is in the store.

Of a swarm's contents one server is in charge, as of the swarm: `Blobs.held` keeps what it does with
one content in order. A content that nothing refers to is no harm, and is removed later on. So they
belong to one database, whose id is kept beside them: another one would remove what it knows not.
"""

import asyncio
import errno
import hashlib
import math
import os
import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from mail.errors import ConfigError, StoreError, StoreFull

P = ParamSpec("P")
T = TypeVar("T")

PIECE: Final = 256 * 1024
"""Bytes that are read or written at once."""
_ABANDONED_SECONDS: Final = 3600.0
HASH: Final = re.compile(r"[0-9a-f]{64}")
MARK: Final = "database"
"""The file with the id of the database."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_COMING: Final = "incoming"
NOT_OURS: Final = (
    "{place} holds the files of another database. Give this one a place of its own; if these are "
    f"its files all the same, remove '{MARK}' there"
)
_SHOWN: Final = 64


class Spool:
    """A content that is being written to a file of this machine."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.size = 0
        """Its bytes so far."""
        self._hash = hashlib.sha256()
        self._waiting: list[bytes] = []
        self._waits = 0

    @property
    def sha256(self) -> str:
        """The hash of what was written; of everything after `end`."""
        return self._hash.hexdigest()

    async def write(self, piece: bytes) -> None:
        """Append bytes.

        Raises:
            StoreFull: there is no room for them.
            StoreError: they cannot be written.
        """
        self._waiting.append(piece)
        self._waits += len(piece)
        self.size += len(piece)
        if self._waits >= PIECE:
            await self._flush()

    async def end(self) -> str:
        """Write what is left; return the content's sha256.

        Raises:
            StoreFull, StoreError: see `write`.
        """
        await self._flush()
        return self.sha256

    async def _flush(self) -> None:
        pieces, self._waiting, self._waits = self._waiting, [], 0
        await in_thread(self._write, pieces)

    def _write(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self._hash.update(piece)
            self.file.write(piece)


class Blobs(ABC):
    """The contents of a swarm's files.

    Args:
        swarm: The swarm.
        database: The id of the database that knows of them.
    """

    def __init__(self, swarm: str, database: str) -> None:
        shown = re.sub(r"[^A-Za-z0-9_-]", "_", swarm)[:_SHOWN]
        # No other swarm has this name, on any file system.
        self.name = f"{shown}-{hashlib.sha256(swarm.encode()).hexdigest()[:16]}"
        self.database = database
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def held(self, sha256: str) -> AsyncIterator[None]:
        """Do one thing at a time with a content."""
        lock = self._locks.setdefault(sha256, asyncio.Lock())
        async with lock:
            yield

    def place(self, sha256: str) -> str:
        """Return where a content is: its path, or its key.

        Raises:
            StoreError: the hash is none.
        """
        if not HASH.fullmatch(sha256):
            raise StoreError("a stored file has no valid hash")
        return f"{self.name}/{sha256[:2]}/{sha256}"

    @abstractmethod
    async def check(self) -> None:
        """Check at the start that they can be used.

        Raises:
            ConfigError: they cannot, because of a setting, or as they are another database's.
        """

    @abstractmethod
    def spool(self) -> AbstractAsyncContextManager[Spool]:
        """Begin a content; what was not kept is gone at the end.

        Raises:
            StoreFull, StoreError: it cannot be written.
        """

    @abstractmethod
    async def keep(self, spool: Spool) -> None:
        """Put a content that has ended in its place, so that it survives a power loss.

        Whoever calls it holds it (`held`).

        Raises:
            StoreFull, StoreError: it cannot be kept.
        """

    @abstractmethod
    def read(
        self, sha256: str, start: int, size: int
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a content to read some of it, piece by piece. It may be removed meanwhile.

        Raises:
            StoreError: it is not there, or cannot be read.
        """

    @abstractmethod
    async def drop(self, sha256: str) -> None:
        """Remove a content, if it is there. Whoever calls it holds it."""

    @abstractmethod
    def unused_for(self, seconds: float) -> AsyncIterator[list[str]]:
        """Yield what was kept, the last time, so long ago, in parts; and tidy up on the way.

        Raises:
            StoreError: they cannot be listed, or are another database's.
        """


class FolderBlobs(Blobs):
    """`Blobs` in a folder of all swarms, which is made when there is something to put into it."""

    def __init__(self, folder: Path, swarm: str, database: str) -> None:
        super().__init__(swarm, database)
        self._root = folder.absolute()
        self._folder = self._root / self.name

    async def check(self) -> None:
        try:
            await in_thread(self._claim_what_is_there)
        except StoreError as error:
            raise ConfigError(f"[server.files] root: {error}") from error

    def _claim_what_is_there(self) -> None:
        if self._folder.is_dir():
            self._claim()

    def _claim(self) -> None:
        """Note whose the contents are, if nobody has done so.

        Raises:
            StoreError: they are another database's.
        """
        mark = self._folder / MARK
        if not mark.exists() or not mark.stat().st_size:
            with mark.open("wb") as made:
                made.write(self.database.encode())
                made.flush()
                os.fsync(made.fileno())
        if mark.read_text("utf-8", "replace") != self.database:
            raise StoreError(NOT_OURS.format(place=self._folder))

    @asynccontextmanager
    async def spool(self) -> AsyncIterator[Spool]:
        async with opened(self._begin, _discard) as file:
            yield Spool(file)

    def _begin(self) -> BinaryIO:
        coming = self._folder / _COMING
        _make_folder(coming)
        self._claim()
        path = coming / secrets.token_hex(16)
        path.touch(0o600, exist_ok=False)
        return path.open("wb")

    async def keep(self, spool: Spool) -> None:
        await in_thread(self._keep, spool)

    def _keep(self, spool: Spool) -> None:
        spool.file.flush()
        os.fsync(spool.file.fileno())
        place = self._root / self.place(spool.sha256)
        if not place.parent.is_dir():
            _make_folder(place.parent)
            _sync_folder(self._folder)
        Path(spool.file.name).replace(place)
        _sync_folder(place.parent)

    @asynccontextmanager
    async def read(self, sha256: str, start: int, size: int) -> AsyncIterator[AsyncIterator[bytes]]:
        path = self._root / self.place(sha256)
        async with opened(lambda: path.open("rb"), close) as file:
            yield _pieces(file, start, size)

    async def drop(self, sha256: str) -> None:
        await in_thread((self._root / self.place(sha256)).unlink, missing_ok=True)

    async def everything(self) -> AsyncIterator[list[str]]:
        """Yield what there is, whosever it is, in parts."""
        for part in await in_thread(_entries, self._folder):
            yield await in_thread(_older, part, math.inf)

    async def unused_for(self, seconds: float) -> AsyncIterator[list[str]]:
        before = time.time() - seconds
        await in_thread(self._claim_what_is_there)
        for part in await in_thread(_entries, self._folder):
            if part.name == _COMING:
                await in_thread(_clear, part)
            else:
                yield await in_thread(_older, part, before)


async def _pieces(file: BinaryIO, start: int, size: int) -> AsyncIterator[bytes]:
    await in_thread(file.seek, start)
    while size > 0:
        piece = await in_thread(file.read, min(size, PIECE))
        if not piece:
            raise StoreError("a stored file is shorter than it was")
        size -= len(piece)
        yield piece


def close(file: BinaryIO) -> None:
    """Close a file."""
    file.close()


def _discard(file: BinaryIO) -> None:
    """Close a file, and remove it if it was not kept."""
    with suppress(OSError):
        file.close()
    Path(file.name).unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _older(folder: Path, before: float) -> list[str]:
    return [
        path.name
        for path in _entries(folder)
        if HASH.fullmatch(path.name) and _changed(path) < before
    ]


def _clear(coming: Path) -> None:
    """Remove what an earlier process had not finished."""
    for path in _entries(coming):
        if _changed(path) < time.time() - _ABANDONED_SECONDS:
            path.unlink(missing_ok=True)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return time.time()


@contextmanager
def as_store_errors() -> Iterator[None]:
    """Tell what a file system refuses as `StoreFull` or `StoreError`."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFull("there is no room for files on the disk") from error
        raise StoreError(f"the folder of files cannot be used: {error}") from error


async def in_thread(work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Use files in a thread. Who is cancelled waits for its end all the same: a file is in use.

    Raises:
        StoreFull, StoreError: the file system refused.
    """
    with as_store_errors():
        return await to_the_end(asyncio.to_thread(work, *given, **named))


@asynccontextmanager
async def opened(begin: Callable[[], T], end: Callable[[T], None]) -> AsyncIterator[T]:
    """Yield what is opened in a thread, and close it, also when the opening is cancelled.

    Raises:
        StoreFull, StoreError: the file system refused.
    """
    made: list[T] = []
    try:
        await in_thread(lambda: made.append(begin()))
        yield made[0]
    finally:
        for each in made:
            await in_thread(end, each)


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Do work; who is cancelled meanwhile is so after its end."""
    working = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait((working,))
        raise
