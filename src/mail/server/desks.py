"""The desks of the swarm that is served: its mail, its teams, and its files with their contents."""

import asyncio
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mail.clock import Clock
from mail.config.env import current
from mail.config.server import FilesConfig, ServerConfig
from mail.core.teams import Teams
from mail.db.blobs import Blobs, FolderBlobs
from mail.db.blobs_s3 import S3Blobs, S3Place
from mail.db.records import Owner, StoredUse
from mail.db.store import Store
from mail.errors import ConfigError
from mail.server.storage import LETTERS, StorageShares
from mail.services.desk import MailDesk
from mail.services.files import DeskFiles
from mail.services.teams import TeamDesk

if TYPE_CHECKING:
    from mail.api import MAILSwarmTemplate
    from mail.server.letters import SwarmAgents


class FileContents:
    """The contents of files, in a folder or in a bucket.

    Args:
        settings: ``[server.files]``.
        store: The store of facts about files.
    """

    def __init__(self, settings: FilesConfig, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._folder = Path()
        self._database_id = ""
        self._scratch: Path | None = None
        self._blobs: dict[str, Blobs] = {}

    async def open(self, swarm: str) -> None:
        """Find out where the contents are, and see that they can be used there.

        Calling it again is fine.

        Raises:
            ConfigError: they cannot, because of a setting, or they are another database's.
        """
        if self._database_id:
            return
        root = self._settings.root
        if root is not None and self._settings.url is not None:
            raise ConfigError("[server.files]: give either root or url")
        database = await self._store.database_id()
        if root is not None:
            self._folder = Path(root)
        elif not self._store.durable:
            self._scratch = Path(tempfile.gettempdir(), f"mail-files-{secrets.token_hex(8)}")
            self._folder = self._scratch
        else:
            self._folder = await self._beside_database(swarm)
        self._database_id = database
        await self.of(swarm).check()

    async def _beside_database(self, swarm: str) -> Path:
        """Return the folder of files that belongs to the database.

        All databases of PostgreSQL had one for long; which has files there goes on using it.
        """
        path: Path | None = getattr(self._store, "path", None)
        if path is not None:  # SQLite's
            return path.with_name(f"{path.stem}-files")
        own, shared = Path(f"{getattr(self._store, 'name', 'mail')}-files"), Path("mail-files")
        if not await asyncio.to_thread(own.exists):
            async for found in FolderBlobs(shared, swarm, "").everything():
                if await self._store.known_contents(swarm, found):
                    return shared
        return own

    def of(self, swarm: str) -> Blobs:
        """Return the contents of a swarm's files."""
        blobs = self._blobs.get(swarm)
        if blobs is None:
            if (url := self._settings.url) is None:
                blobs = FolderBlobs(self._folder, swarm, self._database_id)
            else:
                blobs = S3Blobs(S3Place.of(url), swarm, self._database_id, current())
            self._blobs[swarm] = blobs
        return blobs

    async def close(self) -> None:
        """Remove files that nobody can find any more."""
        if self._scratch is not None:
            await asyncio.to_thread(shutil.rmtree, self._scratch, ignore_errors=True)


class Desk(NamedTuple):
    """The desks of one swarm."""

    template: "MAILSwarmTemplate"
    mail: MailDesk
    teams: TeamDesk
    files: DeskFiles


@dataclass(slots=True, eq=False, kw_only=True)
class Desks:
    """Opens the desks of a swarm when they are first asked for, and closes those of the one before.

    Attributes:
        config: Settings.
        store: The store of mailboxes.
        clock: Time and ids.
        contents: The contents of files.
        agents: Returns what leads to the agents of a swarm.
    """

    config: ServerConfig
    store: Store
    clock: Clock
    contents: FileContents
    agents: "Callable[[MAILSwarmTemplate], SwarmAgents]"
    _shares: StorageShares = field(init=False)
    _open: Desk | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        most = self.config.limits.max_stored_bytes
        self._shares = StorageShares(self._use_of, most, LETTERS)

    def of(self, template: "MAILSwarmTemplate") -> Desk:
        """Return the desks of the swarm that is served."""
        if self._open is not None and self._open.template is template:
            return self._open
        self.close()
        swarm, files = str(template.name), self.config.files
        desk = MailDesk(
            self.store,
            swarm,
            {each["name"]: each["description"] for each in template.participants},
            self.clock,
            self.config.limits.max_message_bytes,
            partial(self._admit, swarm),
            agents=self.agents(template),
        )
        teams = TeamDesk(desk, Teams.of(template.teams, enabled=template.enable_teams))
        made = DeskFiles(
            desk,
            self.store,
            self.contents.of(swarm),
            files.max_bytes,
            files.expire_days,
            lambda name: self._shares.forget(Owner(swarm, "", name)),
        )
        self._open = Desk(template, desk, teams, made)
        return self._open

    def ring(self, names: Iterable[str]) -> None:
        """Wake those who wait for mail of some mailboxes."""
        if self._open is not None:
            self._open.mail.bell.ring(names)

    def close(self) -> None:
        """Let those who wait for mail go."""
        if self._open is not None:
            self._open.mail.bell.close()

    async def _admit(self, swarm: str, name: str, size: int) -> None:
        """Count what a mailbox is about to store, or refuse it."""
        owner = Owner(swarm, "", name)
        await self._shares.admit(owner)
        self._shares.wrote(owner, size)

    async def _use_of(self, owner: Owner) -> StoredUse:
        taken = await self.store.letter_bytes(owner.swarm, owner.id)
        return StoredUse(bytes=taken, tasks=0, open_tasks=0)
