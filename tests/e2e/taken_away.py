"""Databases under the servers of a test, and the ways in which they go away and come back."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tests.e2e.outage import LONGEST
from tests.nodes.hostile import Way as Connections
from tests.nodes.hostile import ways_to
from tests.support.disks import small_disk
from tests.support.postgres import Cluster

REFUSED_AT_ONCE: Final = 8.0
"""On a busy machine; the attempts of the store take 1.5 s, and waiting for somebody else's too."""


@dataclass
class Database:
    """One that goes away and comes back.

    Attributes:
        dsn: Its URL; empty for the file ``mail.db`` in the first server's folder.
        take: Takes it away.
        give: Gives it back.
        store_url: The URL that the servers use, if that is another one.
    """

    dsn: str
    take: Callable[[], Awaitable[object]]
    give: Callable[[], Awaitable[object]]
    store_url: str = ""


Make = Callable[[Cluster, Path], AbstractAsyncContextManager[Database]]
"""Makes a database, given the cluster of all tests and the first server's folder."""


class Way(NamedTuple):
    """A way to go away and come back.

    Attributes:
        database: Makes a database.
        refuses: Whether all is refused meanwhile; what is full may have room for something small.
        patience: So many seconds a refusal may take.
    """

    database: Make
    refuses: bool = True
    patience: float = REFUSED_AT_ONCE


def _of_all(take: Callable[[Cluster], object], give: Callable[[Cluster], object]) -> Make:
    """Return what makes a database in the cluster of all tests."""

    @asynccontextmanager
    async def database(cluster: Cluster, folder: Path) -> AsyncIterator[Database]:
        yield Database(
            cluster.schema(),
            partial(asyncio.to_thread, take, cluster),
            partial(asyncio.to_thread, give, cluster),
        )

    return database


@asynccontextmanager
async def _pair() -> AsyncIterator[tuple[Cluster, Cluster, Connections, str]]:
    """Make a primary with a synchronous standby, an address that leads to it, and a database."""
    with ExitStack() as stack:
        primary = Cluster("synchronous_standby_names=*")
        stack.callback(primary.remove)
        primary.start()
        standby = Cluster(primary=primary)
        stack.callback(standby.remove)
        standby.start()  # before the first commit, which waits for it
        dsn = primary.schema()
        async with ways_to(dsn, 1) as [address]:
            yield primary, standby, address, dsn


@asynccontextmanager
async def _failed_over(cluster: Cluster, folder: Path) -> AsyncIterator[Database]:
    """The primary dies; its address leads to the standby, which becomes the primary later."""
    async with _pair() as (primary, standby, address, dsn):

        async def take() -> None:
            await asyncio.to_thread(primary.stop, signal.SIGQUIT)
            address.upstream = standby.port

        async def give() -> None:
            await asyncio.to_thread(standby.promote)
            database.dsn = dsn.replace(f":{primary.port}/", f":{standby.port}/")

        database = Database(dsn, take, give, address.url)
        yield database


@asynccontextmanager
async def _misled(cluster: Cluster, folder: Path) -> AsyncIterator[Database]:
    """The address leads to the standby for a while; who is connected to that stays connected."""
    async with _pair() as (primary, standby, address, dsn):

        async def take() -> None:
            address.upstream = standby.port
            address.cut()

        async def give() -> None:
            address.upstream = primary.port

        yield Database(dsn, take, give, address.url)


@asynccontextmanager
async def _full(cluster: Cluster, folder: Path, *, log: bool) -> AsyncIterator[Database]:
    """The disk of the data, or of the log, is full; who watches over PostgreSQL starts it again."""
    with small_disk(64) as disk, ExitStack() as stack:
        made = Cluster(log=disk.folder) if log else Cluster(data=disk.folder)
        stack.callback(made.remove)
        made.start()

        def take() -> None:
            disk.fill()
            if log:
                made.use_up_log()

        def give() -> None:
            disk.empty()
            made.revive()

        yield Database(
            made.schema(), partial(asyncio.to_thread, take), partial(asyncio.to_thread, give)
        )


@asynccontextmanager
async def _file_full(cluster: Cluster, folder: Path) -> AsyncIterator[Database]:
    """The disk of an SQLite file is full."""
    with small_disk(64) as disk:
        (folder / "mail.db").symlink_to(disk.folder / "mail.db")
        yield Database(
            "", partial(asyncio.to_thread, disk.fill), partial(asyncio.to_thread, disk.empty)
        )


WAYS: Mapping[str, Way] = {
    "stopped": Way(_of_all(lambda cluster: cluster.stop(signal.SIGINT), Cluster.start)),
    "crashed": Way(_of_all(lambda cluster: cluster.stop(signal.SIGQUIT), Cluster.start)),
    "frozen": Way(_of_all(Cluster.freeze, Cluster.thaw), patience=LONGEST),
    # Who is connected is served; who is not, waits.
    "half frozen": Way(
        _of_all(lambda cluster: cluster.freeze(whole=False), Cluster.thaw),
        refuses=False,
        patience=LONGEST,
    ),
    "failed over": Way(_failed_over),
    "misled": Way(_misled),
    "full data": Way(partial(_full, log=False), refuses=False),
    "full log": Way(partial(_full, log=True), refuses=False),
    "full file": Way(_file_full, refuses=False),
}
