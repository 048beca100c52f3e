"""After a restart: start the instances of callers whose tasks were running, so that they end."""

import asyncio
import logging

from mail.auth.callers import Caller
from mail.db.base import Owner, Store
from mail.errors import ShuttingDown
from mail.server.errors import ServerBusy
from mail.server.instances import InstancePool

__all__ = ["recover_owners"]

_BUSY_SECONDS = 5.0

_log = logging.getLogger("mail.server")


async def recover_owners(store: Store, pool: InstancePool) -> None:
    """Start an instance for every owner with running tasks in the pool's swarm, one by one.

    Instances that idle on an older swarm are closed first. An owner that cannot be started is
    logged; its tasks wait for its next request.
    """
    try:
        await pool.sweep()
        await _recover_all(await store.open_owners(pool.served.template.name), pool)
    except Exception:  # noqa: BLE001 - the server goes on; the tasks wait for their callers
        _log.exception("unfinished tasks could not be found")


async def _recover_all(owners: list[Owner], pool: InstancePool) -> None:
    if owners and pool.served.needs_token:
        _log.warning(
            "%d callers have unfinished tasks; each continues with the caller's next request, "
            "because the swarm calls its model with the caller's own token",
            len(owners),
        )
        return
    waiting = owners
    while waiting:
        waiting = [owner for owner in waiting if not await _recover(pool, owner)]
        if waiting:
            await asyncio.sleep(_BUSY_SECONDS)
    if owners:
        _log.info("unfinished tasks taken up again", extra={"callers": len(owners)})


async def _recover(pool: InstancePool, owner: Owner) -> bool:
    """Start an owner's instance; False to try again: there is no room, or it still works."""
    caller = Caller(owner.role, owner.id)
    try:
        async with pool.lease(caller):
            serving: str = pool.serving(caller).template.name
            return serving == owner.swarm
    except ServerBusy:
        return False
    except ShuttingDown:
        return True
    except Exception:  # noqa: BLE001 - the other owners' tasks must continue
        _log.exception("the unfinished tasks of a caller could not be taken up")
        return True
