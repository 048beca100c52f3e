"""The servers that share a database: which of them does what one does for all, and what holds.

A duty is its server's until that is gone. An announcement is what an administrator tells one server
of a swarm; it holds for all of them until all are gone. Only a store that is shared has either.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


class Node(NamedTuple):
    """A process that shares the database.

    Attributes:
        id: The name under which it claims tasks, another one after each start.
        host: Its machine's name.
        pid: Its process id there.
        version: Of the package.
        swarm: The swarm that it was started with; empty for a program that uses the library.
        uptime: Seconds since it joined.
        silence: Seconds since its last word; others take up its tasks after six.
        tasks: The number of running tasks that it has claimed.
    """

    id: str
    host: str
    pid: int
    version: str
    swarm: str
    uptime: float
    silence: float
    tasks: int

    def __str__(self) -> str:
        """Return words for a message."""
        return f"a server (pid {self.pid} on {self.host})"


def nodes_text(alive: str) -> str:
    """Return the query for the nodes at work, oldest first, given the dialect's ``alive``."""
    return f"""
        SELECT id, host, pid, version, swarm,
            CAST(extract(epoch FROM now() - started_at) AS FLOAT),
            CAST(extract(epoch FROM now() - beat_at) AS FLOAT),
            (SELECT count(*) FROM tasks WHERE is_running AND node = shown.id)
        FROM nodes AS shown WHERE {alive.format("shown.id")} ORDER BY started_at, id"""


class Hint:
    """Hears when other servers hint at a topic, or hints may have been lost."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._heard = asyncio.Event()

    def hear(self, topics: list[str]) -> None:
        """Take what they hint at."""
        if not topics or self._topic in topics:
            self._heard.set()

    async def wait(self, seconds: float) -> None:
        """Wait for a hint, but not longer than so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._heard.wait()
        self._heard.clear()


class NodeVerbs(Verbs):
    """Duties, announcements and hints. In a store that is not shared every duty is one's own."""

    @contextmanager
    def hints(self, topic: str) -> Iterator[Hint]:
        """Hear of a topic in this event loop for the length of the block."""
        hint = Hint(topic)
        stop = self.driver.on_hint(hint.hear)
        try:
            yield hint
        finally:
            stop()

    async def nodes(self) -> list[Node]:
        """Return the servers and programs that share the store, oldest first; none but there."""
        return await self._nodes() if self.driver.shared else []

    async def on_duty(self, duty: str) -> bool:
        """Tell whether this process does what one does for all; who has a duty keeps it.

        It is taken if nobody at work has it.
        """
        return not self.driver.shared or await self._on_duty(duty)

    @write
    def _on_duty(self, duty: str) -> Verb[bool]:
        mine = duty, self.driver.node
        if (yield Query("SELECT 1 FROM duties WHERE name = $1 AND node = $2", mine)):
            return True
        gone = f"NOT {self.sql.alive.format('duties.node')}"
        text = f"""
            INSERT INTO duties (name, node) VALUES ($1, $2)
            ON CONFLICT (name) DO UPDATE SET node = $2 WHERE {gone} RETURNING 1"""
        return bool((yield Query(text, mine)))

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

    @read
    def _nodes(self) -> Verb[list[Node]]:
        return [Node(*row) for row in (yield Query(nodes_text(self.sql.alive)))]

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
