"""Announcements: what an administrator tells one server of a swarm, and holds for all of them.

They hold until all of these servers are gone. Only a store that servers share has them.
"""

from typing import Final, NamedTuple

from mail.db.driver import Change, Query, Verb, Verbs, read, write

_PUT: Final = """
INSERT INTO announcements (swarm, name, value) VALUES ($1, $2, $3)
ON CONFLICT (swarm, name) DO UPDATE SET value = $3, number = excluded.number RETURNING number
"""


class Announcement(NamedTuple):
    """One of them.

    Attributes:
        name: What it is about.
        value: What holds.
        number: Grows with each announcement.
    """

    name: str
    value: str
    number: int


class AnnouncementVerbs(Verbs):
    """Announcements. In a store that is not shared there are none."""

    async def announce(self, swarm: str, name: str, value: str) -> int:
        """Replace what holds, and return the announcement's number; 0 where there are none."""
        if not self.driver.shared:
            return 0
        number = await self._announce(swarm, name, value)
        self.driver.tell("announcements")
        return number

    async def announcements(self, swarm: str) -> list[Announcement]:
        """Return what holds, in the order in which it was told."""
        return await self._announcements(swarm) if self.driver.shared else []

    async def begin_announcements(self, swarm: str) -> None:
        """Forget what was told to servers of a swarm that are all gone."""
        if self.driver.shared:
            await self._forget(swarm)

    @write
    def _announce(self, swarm: str, name: str, value: str) -> Verb[int]:
        return int((yield Query(_PUT, (swarm, name, value)))[0][0])

    @read
    def _announcements(self, swarm: str) -> Verb[list[Announcement]]:
        text = "SELECT name, value, number FROM announcements WHERE swarm = $1 ORDER BY number"
        return [Announcement(*row) for row in (yield Query(text, (swarm,)))]

    @write
    def _forget(self, swarm: str) -> Verb[None]:
        text = f"""
            DELETE FROM announcements WHERE swarm = $1 AND NOT EXISTS (
                SELECT 1 FROM nodes AS others
                WHERE swarm = $1 AND id <> $2 AND {self.sql.alive.format("others.id")})"""
        yield Change(text, (swarm, self.driver.node))
