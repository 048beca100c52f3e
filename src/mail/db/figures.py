"""Figures of what is stored of a swarm, for ``GET /metrics``. All of its servers see the same."""

from typing import Final, NamedTuple, TypeAlias

from pydantic_core import from_json

from mail.db.driver import Query, Verb, Verbs, read, write
from mail.db.outbox import SENT_HERE

MOST_COUNTED: Final = 100_000
"""Waiting messages that are looked at; a longer queue counts as so many."""
MOST_PEERS: Final = 200
"""Rows about the outbox; of more the longest are kept."""

_QUEUE: Final = f"""
SELECT queue.tier, waiting, payload FROM (
    SELECT tier, count(*) AS waiting, min(seq) AS oldest FROM (
        SELECT tier, seq FROM tasks JOIN messages ON messages.task = tasks.key
        WHERE swarm_name = $1 AND is_running AND messages.state = 'ready'
        LIMIT {MOST_COUNTED}) AS ready
    GROUP BY tier) AS queue
JOIN messages ON seq = oldest ORDER BY queue.tier"""

_TASKS: Final = """
SELECT 'running', count(*) FROM tasks WHERE swarm_name = $1 AND is_running
UNION ALL SELECT 'paused', count(*) FROM tasks WHERE swarm_name = $1 AND state = 'paused'"""

_OUTBOX: Final = f"""
SELECT peer, outbox.state, count(*), min(outbox.created_at)
FROM outbox JOIN tasks ON tasks.key = outbox.task WHERE {SENT_HERE}
GROUP BY peer, outbox.state ORDER BY count(*) DESC, peer LIMIT {MOST_PEERS}"""

_WEBHOOKS: Final = """
SELECT state, count(*), min(created_at) FROM webhooks WHERE swarm_name = $1 GROUP BY state"""


class Waiting(NamedTuple):
    """A number of something, and since when there is the oldest (RFC 3339 text in UTC)."""

    number: int
    oldest: str


Labels: TypeAlias = tuple[str, ...]


class StoreFigures(NamedTuple):
    """Figures of what is stored of a swarm.

    Attributes:
        tasks: The number of open tasks by state, ``running`` or ``paused``.
        queue: The messages of running tasks that no turn has finished with, by tier.
        outbox: Mail for other swarms, by swarm and state.
        webhooks: Messages for the webhook, by state.
        nodes: The number of servers that are at work on the database.
    """

    tasks: dict[Labels, int]
    queue: dict[Labels, Waiting]
    outbox: dict[Labels, Waiting]
    webhooks: dict[Labels, Waiting]
    nodes: int


class FigureVerbs(Verbs):
    """Figures, and whether the store works."""

    @write
    def commit_nothing(self) -> Verb[None]:
        """Fail like any commit where nothing can be written."""
        yield Query("SELECT 1")

    @read
    def figures(self, swarm: str) -> Verb[StoreFigures]:
        """Return the figures of a swarm; indexes keep them from reading what has ended."""
        tasks = yield Query(_TASKS, (swarm,))
        queue = yield Query(_QUEUE, (swarm,))
        outbox = yield Query(_OUTBOX, (swarm,))
        webhooks = yield Query(_WEBHOOKS, (swarm,))
        nodes = 1
        if self.driver.shared:
            alive = self.sql.alive.format("node.id")
            ((nodes,),) = yield Query(f"SELECT count(*) FROM nodes AS node WHERE {alive}")
        return StoreFigures(
            {(state,): number for state, number in tasks},
            {
                (str(tier),): Waiting(waiting, from_json(mail)["timestamp"])
                for tier, waiting, mail in queue
            },
            {(peer, state): Waiting(*rest) for peer, state, *rest in map(tuple, outbox)},
            {(state,): Waiting(*rest) for state, *rest in map(tuple, webhooks)},
            nodes,
        )
