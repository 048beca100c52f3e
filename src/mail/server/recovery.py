"""After a restart: start the instances of callers whose tasks were running, so that they end."""

import asyncio
import logging

from mail.db.base import Owner, Store
from mail.errors import ShuttingDown
from mail.server.errors import ServerBusy
from mail.server.instances import InstancePool
from mail.utils.callers import Caller

__all__ = ["recover_owners"]

_BUSY_SECONDS = 5.0

_log = logging.getLogger("mail.server")


async def recover_owners(store: Store, pool: InstancePool, swarm: str) -> None:
    """Start an instance for every owner with running tasks, one after the other.

    An owner that cannot be started is logged; its tasks wait for its next request.
    """
    owners = await store.open_owners(swarm)
    if owners and pool.needs_token:
        _log.warning(
            "%d callers have unfinished tasks; each continues with the caller's next request, "
            "because the swarm calls its model with the caller's own token",
            len(owners),
        )
        return
    for owner in owners:
        await _recover(pool, owner)
    if owners:
        _log.info("unfinished tasks of %d callers taken up again", len(owners))


async def _recover(pool: InstancePool, owner: Owner) -> None:
    while True:
        try:
            async with pool.lease(Caller(owner.role, owner.id)):
                return
        except ServerBusy:
            await asyncio.sleep(_BUSY_SECONDS)
        except ShuttingDown:
            return
        except Exception:  # noqa: BLE001 - the other owners' tasks must continue
            _log.exception("the unfinished tasks of a caller could not be taken up")
            return
