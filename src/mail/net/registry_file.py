"""The storage of a registry: a file, or the database, which several processes may share.

Whoever changes the file holds the lock file beside it, reads it first, and replaces it in one step,
so that readers need no lock and a crash leaves the old file or the new one. The database holds the
same text with a number that counts its changes. Whoever changes it names the number that was read:
what somebody else has changed meanwhile is read first.
"""

import asyncio
import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from mail.db.keys import RegistryVerbs
from mail.db.records import RegistryRow
from mail.db.store import Store
from mail.errors import StoreConflict, StoreError
from mail.net.endpoints import endpoint_from_json, endpoint_to_json, proposal_from_json
from mail.net.types import ProposedSwarm, SwarmEndpoint

_LOCK_SECONDS: Final = 5.0
_LOCK_STEP: Final = 0.02
_LARGEST: Final = 16 * 1024 * 1024

_ABOUT: Final[Mapping[str, type]] = {
    "local_swarm_name": str,
    "local_base_url": str,
    "local_swarm_description": str,
    "local_swarm_keywords": list,
    "local_swarm_public": bool,
}

_Signature = tuple[int, int, int]

_EVERY_SECONDS: Final = 1.0

_log = logging.getLogger("mail.registry")


class BrokenRegistry(StoreError):
    """The file is there, but it is not a registry."""


@dataclass
class RegistryContent:
    """The content of a file.

    Attributes:
        about: The five keys about the swarm that wrote it.
        endpoints: Its entries.
        proposed: Swarms that wait for approval.
        unread: Entries that cannot be used. They stay in the file as they are.
        problems: Why not.
    """

    about: dict[str, Any] = field(default_factory=dict)
    endpoints: dict[str, SwarmEndpoint] = field(default_factory=dict)
    proposed: dict[str, ProposedSwarm] = field(default_factory=dict)
    unread: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @classmethod
    def from_json(cls, data: Any) -> "RegistryContent":
        """Read the object of a file; an entry that cannot be used is put aside.

        Raises:
            BrokenRegistry: it is not such an object.
        """
        if not isinstance(data, dict) or not isinstance(data.get("endpoints"), dict):
            raise BrokenRegistry("it is not an object with 'endpoints'")
        content = cls({k: data[k] for k, kind in _ABOUT.items() if isinstance(data.get(k), kind)})
        for name, entry in data["endpoints"].items():
            try:
                content.endpoints[name] = endpoint_from_json(name, entry)
            except ValueError as error:
                content.unread[name] = entry
                content.problems.append(f"entry {name[:64]!r}: {error}")
        proposed = data.get("proposed")
        for name, entry in proposed.items() if isinstance(proposed, dict) else ():
            try:
                content.proposed[name] = proposal_from_json(name, entry)
            except ValueError as error:
                content.problems.append(f"proposal {name[:64]!r}: {error}")
        return content

    @classmethod
    def from_text(cls, text: bytes | str) -> "RegistryContent":
        """Read the JSON of a file.

        Raises:
            BrokenRegistry: it is none, or not such an object.
        """
        if len(text) > _LARGEST:
            raise BrokenRegistry(f"it is larger than {_LARGEST} bytes")
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise BrokenRegistry("it is not valid JSON") from None
        return cls.from_json(data)

    def to_json(self) -> dict[str, Any]:
        """Return the object for a file, without any token."""
        entries = {name: endpoint_to_json(entry) for name, entry in self.endpoints.items()}
        proposed = {"proposed": self.proposed} if self.proposed else {}
        return {**self.about, "endpoints": {**self.unread, **entries}, **proposed}


class RegistryFile:
    """One such file; nothing is touched before a method is called."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self._known: _Signature | None = None

    def make_folder(self) -> None:
        """Create the folder of the file.

        Raises:
            OSError: it cannot be created.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)

    @property
    def place(self) -> str:
        """The name of the registry in messages."""
        return str(self.path)

    def news(self) -> RegistryContent | None:
        """Return what the file holds if it is another one than the last read or written here.

        Raises:
            BrokenRegistry, StoreError: see `read`.
        """
        return self.read() if self._signature() != self._known else None

    async def watch(self) -> None:
        """Do nothing: `news` has a look at the file itself."""

    def exists(self) -> bool:
        """Tell whether there is a file."""
        return self.path.exists()

    def read(self) -> RegistryContent:
        """Return what the file holds, nothing when there is none.

        Raises:
            BrokenRegistry: it is not a registry.
            StoreError: it cannot be read.
        """
        self._known = self._signature()
        try:
            with self.path.open("rb") as opened:
                text = opened.read(_LARGEST + 1)
        except (FileNotFoundError, NotADirectoryError):
            return RegistryContent()
        except OSError as error:
            raise StoreError(f"the registry {self.path} cannot be read: {error.strerror}") from None
        try:
            return RegistryContent.from_text(text)
        except BrokenRegistry as error:
            raise BrokenRegistry(f"the registry {self.path} is damaged: {error}") from None

    def set_aside(self) -> str:
        """Rename a damaged file, so that nothing of it is lost, and return its new path.

        Raises:
            StoreError: it cannot be renamed.
        """
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
        aside = self.path.with_name(f"{self.path.name}.corrupt-{moment}")
        try:
            self.path.rename(aside)
        except OSError as error:
            raise StoreError(
                f"the damaged registry {self.path} cannot be renamed: {error.strerror}"
            ) from None
        return str(aside)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from changing the file for a moment.

        Raises:
            StoreError: the lock file cannot be made, or another process does not let go of it.
        """
        lock = self.path.with_name(self.path.name + ".lock")
        try:
            self.make_folder()
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"cannot write to {self.path.parent}: {error.strerror}") from None
        try:
            _lock(handle, lock)
            yield
        finally:
            os.close(handle)

    def write(self, content: RegistryContent) -> None:
        """Replace the file in one step; hold the lock.

        Raises:
            StoreError: it cannot be written; the old file is there, unchanged.
        """
        text = json.dumps(content.to_json(), indent=2, allow_nan=False).encode() + b"\n"
        new = self.path.with_name(self.path.name + ".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            new.unlink(missing_ok=True)  # of a process that died
            with os.fdopen(os.open(new, flags, 0o600), "wb") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(opened.fileno())
            new.replace(self.path)
            self._sync_folder()
        except OSError as error:
            new.unlink(missing_ok=True)
            raise StoreError(
                f"the registry {self.path} cannot be written: {error.strerror}"
            ) from None
        self._known = self._signature()

    def is_written_at_end(self, content: RegistryContent) -> bool:
        """Tell whether a process that ends writes the health of the peers that it knows."""
        return bool(content.endpoints or content.proposed) or self.exists()

    def _sync_folder(self) -> None:
        handle = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _signature(self) -> _Signature | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns


def _lock(handle: int, path: Path) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StoreError(f"another process holds {path}") from None
            time.sleep(_LOCK_STEP)
        else:
            return


def shared_registry(store: Store, swarm: str, file: str) -> "RegistryTable | None":
    """Return the registry of a swarm in an open store, with what its file has; None for most.

    Only a store that servers may share has one. A file is imported when there is nothing in the
    database yet, and not looked at again. Blocks; call it in a thread.

    Args:
        store: The store.
        swarm: The local swarm.
        file: The registry's file.
    """
    if not isinstance(store, RegistryVerbs):
        return None
    table = RegistryTable(store, swarm)
    try:
        table.import_file(RegistryFile(file))
    except StoreError as error:
        _log.error("the registry %s was not imported: %s", file, error)
    return table


class RegistryTable:
    """One such registry. Its methods block, but for `news` and `watch`."""

    def __init__(self, store: RegistryVerbs, swarm: str) -> None:
        self.place = f"of swarm '{swarm}' in the database"
        self._store = store
        self._swarm = swarm
        self._version = 0
        self._news: RegistryRow | None = None

    def make_folder(self) -> None:
        """Do nothing: the table is there."""

    def import_file(self, file: RegistryFile) -> None:
        """Take over what a file has, if there is one and nothing in the database yet.

        Raises:
            StoreError: it is damaged, and stays as it is, or the database does not answer.
        """
        if not file.exists() or self._load() is not None:
            return
        content = file.read()
        content.unread = {}
        try:
            self.write(content)
        except StoreConflict:  # another server was faster
            return
        for problem in content.problems:
            _log.error("registry %s: %s; it was not imported", file.place, problem)
        _log.warning(
            "the registry %s was imported into the database, which replaces it; the file is not "
            "used any more",
            file.place,
        )

    def read(self) -> RegistryContent:
        """Return what it holds, nothing when there is none.

        Raises:
            BrokenRegistry: it is not a registry.
            StoreError: the database does not answer.
        """
        row = self._load()
        return RegistryContent() if row is None else self._parsed(row)

    def news(self) -> RegistryContent | None:
        """Return what it holds if another process has changed it; waits for nothing.

        Raises:
            BrokenRegistry: it is not a registry.
        """
        row, self._news = self._news, None
        return None if row is None or row.version <= self._version else self._parsed(row)

    async def watch(self) -> None:
        """Look for changes of other processes until cancelled; they become `news`."""
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            try:
                self._news = await self._store.load_registry(self._swarm, self._version)
            except StoreError as error:
                _log.debug("the registry %s cannot be read: %s", self.place, error)

    def set_aside(self) -> str:
        """Refuse to: what is damaged in a database is for its operator.

        Raises:
            StoreError: always.
        """
        raise StoreError(f"the registry {self.place} is damaged; correct or delete its row")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Do nothing: `write` tells when another process was faster."""
        yield

    def write(self, content: RegistryContent) -> None:
        """Replace what was read last.

        Raises:
            StoreConflict: another process has changed it since then.
            StoreError: the database does not answer.
        """
        text = json.dumps(content.to_json(), allow_nan=False)
        self._version = asyncio.run(self._store.save_registry(self._swarm, text, self._version))

    def is_written_at_end(self, content: RegistryContent) -> bool:
        """Return False: the others see the health of their peers themselves."""
        return False

    def _load(self) -> RegistryRow | None:
        return asyncio.run(self._store.load_registry(self._swarm))

    def _parsed(self, row: RegistryRow) -> RegistryContent:
        self._version = row.version
        try:
            return RegistryContent.from_text(row.content)
        except BrokenRegistry as error:
            raise BrokenRegistry(f"the registry {self.place} is damaged: {error}") from None
