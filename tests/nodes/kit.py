"""Several servers, each a process of its own, on one PostgreSQL database."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.e2e.processes import Place, place_of


class Servers:
    """Servers that share a database, a provider, and the gates of its models."""

    def __init__(self, first: Place, count: int) -> None:
        self.evidence = first.evidence
        self.places = [first]
        for number in range(1, count):
            folder = first.folder / f"node{number}"
            folder.mkdir()
            self.places.append(Place(folder, first.provider_port, dsn=first.dsn))
        for place in self.places[1:]:
            place.gates.rmdir()
            for shared in ("gates", "actions.jsonl", "team.json"):
                (place.folder / shared).symlink_to(first.folder / shared)
            place.evidence = first.evidence
        self._next = itertools.count()

    def url(self) -> str:
        """Return the address of the next server."""
        return self.places[next(self._next) % len(self.places)].url


@asynccontextmanager
async def servers_of(folder: Path, dsn: str, count: int, **options: str) -> AsyncIterator[Servers]:
    """Make servers, with tokens and a provider; the test starts each of them."""
    async with place_of(folder, dsn=dsn, **options) as first:
        servers = Servers(first, count)
        try:
            yield servers
        finally:
            for place in servers.places:
                place.clean_up()
