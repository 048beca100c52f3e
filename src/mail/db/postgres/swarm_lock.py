"""One server per swarm and database: advisory locks of a session that does nothing else.

PostgreSQL lets go of it when the process dies, and within about a minute when its machine does.
When the session breaks, it is taken again as soon as the database answers; until then nothing is
written. If another server was faster, this one has lost the swarm for good.
"""

import asyncio
import hashlib
import logging
import os
import secrets
import socket
from contextlib import suppress
from typing import Any, Final

import asyncpg

from mail.db.postgres.connect import CONNECT_SECONDS, as_store_error, is_transient, pause_before
from mail.db.postgres.dialect import Connection
from mail.db.records import SwarmClaim
from mail.errors import StoreLocked

_PATIENCE: Final = "3s"
"""The time for a predecessor's session to end."""

_SETTINGS: Final = {
    "lock_timeout": _PATIENCE,
    "statement_timeout": "10s",
    "idle_session_timeout": "0",
    # A machine that is gone without a word is noticed after about a minute.
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
_SCHEMA: Final = "SELECT coalesce(current_schema(), '')"
_TAKE: Final = "SELECT pg_advisory_lock($1)"
_HOLDER: Final = """
SELECT activity.pid, activity.application_name, host(activity.client_addr) AS address
FROM pg_locks LEFT JOIN pg_stat_activity AS activity USING (pid)
WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32 | objid::bigint) = $1
"""
_END_OTHER: Final = "SELECT pg_terminate_backend($1)"

logger = logging.getLogger(__name__)


class ClaimKeeper:
    """Takes a swarm and keeps it. Everything but `check` happens in the store's loop."""

    def __init__(self, dsn: str, claim: SwarmClaim) -> None:
        self._dsn = dsn
        self._claim = claim
        self._swarms = [claim.swarm]
        # 63 characters are kept of it.
        place = f"{socket.gethostname()[:30]} {os.getpid()} {secrets.token_hex(4)}"
        self._name = f"mail-claim {place}"
        self._connection: Connection = None
        self._retaking: asyncio.Task[None] | None = None
        self._held = False
        self._lost = False
        self._closed = False

    async def take(self) -> None:
        """Take what is claimed; wait for a moment for a predecessor that is just ending.

        Raises:
            StoreLocked: another server has it; the text says which.
        """
        connection = await self._connect()
        try:
            for swarm in self._swarms:
                await self._lock(connection, swarm)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        self._held = True
        connection.add_termination_listener(self._broke)

    async def take_also(self, swarm: str) -> None:
        """Take one more swarm, and keep it like the first.

        Raises:
            StoreLocked: another server has it; nothing is lost over that.
            ConnectionError: the session broke; it may come back in a moment.
        """
        self.check()
        if swarm not in self._swarms:
            await self._lock(self._connection, swarm)
            self._swarms.append(swarm)

    def check(self) -> None:
        """Let a write pass only while the swarm is held.

        Raises:
            ConnectionError: the session broke; it may come back in a moment.
            StoreLocked: another server has the swarm.
        """
        if self._lost:
            swarms = " or ".join(f"'{swarm}'" for swarm in self._swarms)
            raise StoreLocked(f"another server has taken over swarm {swarms}")
        if not self._held:
            raise ConnectionError(
                "the session that holds the swarm's lock broke; taking the lock again"
            )

    async def close(self) -> None:
        """Give the swarm back."""
        self._closed, self._held = True, False
        if self._retaking is not None:
            self._retaking.cancel()
            await asyncio.gather(self._retaking, return_exceptions=True)
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # the server lets go of what a broken session held
                await connection.close(timeout=1.0)

    async def _connect(self) -> Connection:
        connection: Connection = await asyncpg.connect(
            self._dsn, timeout=CONNECT_SECONDS, server_settings={"application_name": self._name}
        )
        try:
            for name, value in _SETTINGS.items():
                with suppress(asyncpg.UndefinedObjectError):  # an older server lacks one of them
                    await connection.execute("SELECT set_config($1, $2, FALSE)", name, value)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _lock(self, connection: Connection, swarm: str) -> None:
        key = claim_key(await connection.fetchval(_SCHEMA), swarm)
        try:
            await connection.execute(_TAKE, key)
        except (asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError):
            holder = await connection.fetchrow(_HOLDER, key)
            if holder is None or holder["application_name"] != self._name:
                raise StoreLocked(
                    f"swarm '{swarm}' is served from this database by another server"
                    f"{_described(holder)}; stop that one, or use another database, schema or "
                    "swarm name"
                ) from None
            # A session of our own that the server has not noticed to be dead.
            await connection.execute(_END_OTHER, holder["pid"])
            await connection.execute(_TAKE, key)

    def _broke(self, connection: Connection) -> None:
        if connection is not self._connection or self._closed:
            return
        self._connection, self._held = None, False
        logger.warning(
            "the session that holds the swarm's lock broke; nothing is written "
            "until the lock is taken again"
        )
        self._retaking = asyncio.get_running_loop().create_task(self._retake())

    async def _retake(self) -> None:
        attempt = 0
        while True:
            attempt += 1
            await asyncio.sleep(pause_before(attempt))
            try:
                await self.take()
            except StoreLocked as error:
                self._lost = True
                logger.critical("another server took over the swarm: %s", error)
                self._claim.lost()
                return
            # The database is away, or comes back; only time helps.
            except Exception as error:  # noqa: BLE001
                if not is_transient(error):
                    logger.warning(
                        "the swarm's lock cannot be taken again yet: %s", as_store_error(error)
                    )
            else:
                logger.info("the swarm's lock is held again")
                return


def claim_key(schema: str, swarm: str) -> int:
    """Return the number of a swarm's advisory lock: 64 bits, with a sign."""
    digest = hashlib.sha256(f"mail swarm\0{schema}\0{swarm}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


async def claim_holder(connection: Connection, swarm: str) -> str | None:
    """Return words about the server that has a swarm, None when nobody does."""
    key = claim_key(await connection.fetchval(_SCHEMA), swarm)
    holder = await connection.fetchrow(_HOLDER, key)
    return None if holder is None else f"another server{_described(holder)}"


def _described(holder: Any) -> str:
    """Say which process it is, as far as the database tells us."""
    if holder is None:
        return ""
    kind, _, place = (holder["application_name"] or "").partition(" ")
    words = place.split(" ")
    if kind != "mail-claim" or len(words) < 2:
        return f" (session {holder['pid']} of the database)"
    return f" (pid {words[1]} on {words[0]})"
