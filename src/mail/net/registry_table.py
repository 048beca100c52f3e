"""A registry in the database, which all servers of a swarm share.

It holds what the file would hold, as one text with a number that counts its changes. Whoever
changes it names the number that was read: what somebody else has changed meanwhile is read first.
"""

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mail.db.keys import RegistryVerbs
from mail.db.records import RegistryRow
from mail.db.store import Store
from mail.errors import StoreConflict, StoreError
from mail.net.registry_file import BrokenRegistry, RegistryContent, RegistryFile

_EVERY_SECONDS: Final = 1.0

_log = logging.getLogger("mail.registry")


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
