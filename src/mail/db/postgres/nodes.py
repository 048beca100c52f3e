"""The processes that share a database: each says every second that it is there.

Its tasks are its own until it has said nothing for `LEASE_SECONDS`, by the database's clock; then
others take them up. It proves in each commit of a task that nobody has, see `mail.db.claims`.
"""

import asyncio
import logging
import os
import socket
import time
from contextlib import suppress
from typing import Final

from mail.db.nodes import Node, nodes_text
from mail.db.postgres.connect import ANSWER_SECONDS, as_store_error, borrowed
from mail.db.postgres.dialect import LEASE_SECONDS, Connection, Pool, PostgresDialect
from mail.version import get_version

_BEAT_SECONDS: Final = 1.0

_BEAT: Final = """
WITH others AS (
    SELECT 1 FROM nodes WHERE id <> $1 AND beat_at > now() - interval '1 minute' LIMIT 1
)
INSERT INTO nodes (id, host, pid, version, swarm) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (id) DO UPDATE SET beat_at = now() RETURNING NOT EXISTS (SELECT 1 FROM others)
"""
_CLEAR: Final = """
DELETE FROM nodes WHERE beat_at < now() - interval '1 day';
DELETE FROM relayed WHERE created_at < now() - interval '1 hour'
"""
_LEAVE: Final = "DELETE FROM nodes WHERE id = $1"
_OF_HOST: Final = "SELECT id, pid FROM nodes WHERE host = $1"
_HERE: Final[set[str]] = set()
"""The names that this process has had."""

logger = logging.getLogger(__name__)


async def nodes_at_work(connection: Connection) -> list[Node]:
    """Return the processes that share a database, oldest first; none before it has the table.

    Those that have died on this machine are left out, though their time has not run out yet.
    """
    if await connection.fetchval("SELECT to_regclass('nodes') IS NULL"):
        return []
    found, here = await connection.fetch(nodes_text(PostgresDialect.alive)), socket.gethostname()
    nodes = [Node(*row) for row in found]
    return [node for node in nodes if node.host != here or _is_there(node.pid)]


class Membership:
    """The row of this process in ``nodes``. Everything happens in the store's loop.

    Attributes:
        alone: Whether no other process has been there for a minute.
    """

    def __init__(self, pool: Pool, node: str, swarm: str) -> None:
        """Take the pool, the name that is the process's own, and the swarm of its start."""
        self._pool = pool
        self._row = node, socket.gethostname(), os.getpid(), get_version(), swarm
        _HERE.add(node)
        self._beating: asyncio.Task[None] | None = None
        self.alone = True
        self._seen, self._lapses = time.monotonic(), 0

    @property
    def lapses(self) -> int:
        """The number of silences in which others may have taken its tasks up."""
        return self._lapses + (time.monotonic() - self._seen > LEASE_SECONDS)

    async def join(self) -> None:
        """Say that the process is there, from now on; nobody waits for those that died here."""
        host = self._row[1]
        async with borrowed(self._pool, ANSWER_SECONDS) as connection:
            await connection.execute(_CLEAR)
            for other, pid in await connection.fetch(_OF_HOST, host):
                if other not in _HERE and (pid == os.getpid() or not _is_there(pid)):
                    await connection.execute(_LEAVE, other)
            self.alone = await connection.fetchval(_BEAT, *self._row)
        self._beating = asyncio.create_task(self._beat(), name="heartbeat")

    async def leave(self) -> None:
        """Say that it is gone, so that nobody waits for it; not for long."""
        if self._beating is None:
            return
        self._beating.cancel()
        await asyncio.gather(self._beating, return_exceptions=True)
        with suppress(Exception):  # then its time runs out
            async with borrowed(self._pool, _BEAT_SECONDS) as connection:
                await connection.execute(_LEAVE, self._row[0])

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            try:
                async with borrowed(self._pool, LEASE_SECONDS) as connection:
                    self.alone = await connection.fetchval(_BEAT, *self._row)
                self._lapses, self._seen = self.lapses, time.monotonic()
            except Exception as error:  # noqa: BLE001 - only the database's return helps
                logger.warning("no heartbeat: %s", as_store_error(error))


def _is_there(pid: int) -> bool:
    """Tell whether a process of this host has a number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
