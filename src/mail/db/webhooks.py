"""Messages for the webhook. Commits of tasks write them; they outlive the tasks."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from mail.db.driver import Batch, Change, Query, Verb, Verbs, read, write
from mail.db.rows import columns, insert

MOST_WEBHOOKS: Final = 10_000
"""The number that is kept for a swarm; the oldest of the owner who has most make room."""


class WebhookRow(NamedTuple):
    """One message to the webhook, kept until its receiver has taken it.

    Attributes:
        message_id: By which the receiver knows a repeated one.
        event: ``paused``, ``approval`` or ``ended``.
        task_id: The task that it tells of.
        owner: The owner of the task, as ``role:id@swarm``.
        body: The body of the request, a JSON object.
        created_at: The time of writing, or of a retry; RFC 3339 text in UTC.
        state: ``waiting``, or ``dead``: given up.
        attempts: The number of attempts.
        next_at: Not to be sent before; RFC 3339 text in UTC, or no text.
        last_error: Why the last attempt failed.
        id: Given by the store.
    """

    message_id: str
    event: str
    task_id: str
    owner: str
    body: str
    created_at: str
    state: Literal["waiting", "dead"] = "waiting"
    attempts: int = 0
    next_at: str = ""
    last_error: str = ""
    id: int = 0


class WebhookChange(NamedTuple):
    """The new state of a message; ``done`` removes it. Unknown numbers are passed over."""

    id: int
    state: Literal["waiting", "dead", "done"]
    attempts: int = 0
    next_at: str = ""
    last_error: str = ""


_COLUMNS: Final = columns(WebhookRow)
_THIS: Final = "swarm_name = $1 AND id = $2"
_WAITING: Final = "swarm_name = $1 AND state = 'waiting'"

_ADD: Final = insert("webhooks", "swarm_name", columns(WebhookRow, "id"))

_MAKE_ROOM: Final = """
DELETE FROM webhooks WHERE id IN (
    SELECT id FROM webhooks WHERE swarm_name = $1 AND owner = (
        SELECT owner FROM webhooks WHERE swarm_name = $1
        GROUP BY owner ORDER BY count(*) DESC, min(id) LIMIT 1)
    ORDER BY id LIMIT (
        SELECT CASE WHEN count(*) > $2 THEN count(*) - $2 ELSE 0 END
        FROM webhooks WHERE swarm_name = $1))
"""

_CHANGE: Final = f"""
UPDATE webhooks SET state = $3, attempts = $4, next_at = $5, last_error = $6 WHERE {_THIS}
"""

_RETRY: Final = f"""
UPDATE webhooks SET created_at = $3, state = 'waiting', attempts = 0, next_at = '' WHERE {_THIS}
"""

_GIVE_UP: Final = f"""
UPDATE webhooks SET state = 'dead', last_error = $3 WHERE {_WAITING} AND created_at < $2
"""


def add_webhooks(swarm: str, rows: Sequence[WebhookRow]) -> Verb[None]:
    """Add messages, and remove the oldest if there are more than `MOST_WEBHOOKS` then."""
    if rows:
        yield Batch(_ADD, [(swarm, *row[:-1]) for row in rows])
        yield Change(_MAKE_ROOM, (swarm, MOST_WEBHOOKS))


class WebhookVerbs(Verbs):
    """Messages to the webhook."""

    @read
    def due_webhooks(self, swarm: str, now: str, limit: int) -> Verb[list[WebhookRow]]:
        """Return waiting messages that may be sent now, the oldest first.

        Args:
            swarm: The swarm.
            now: RFC 3339 text in UTC.
            limit: At most so many.
        """
        text = f"""
            SELECT {_COLUMNS} FROM webhooks WHERE {_WAITING} AND next_at <= $2
            ORDER BY id LIMIT $3"""
        rows = yield Query(text, (swarm, now, limit))
        return [WebhookRow(*row) for row in rows]

    @read
    def next_webhook(self, swarm: str) -> Verb[str | None]:
        """Return the earliest ``next_at`` of a waiting message; None without any."""
        rows = yield Query(f"SELECT min(next_at) FROM webhooks WHERE {_WAITING}", (swarm,))
        earliest: str | None = rows[0][0]
        return earliest

    @read
    def list_webhooks(self, swarm: str, after: int, limit: int) -> Verb[list[WebhookRow]]:
        """Return a page of a swarm's messages in order of their numbers, in any state."""
        text = f"""
            SELECT {_COLUMNS} FROM webhooks WHERE swarm_name = $1 AND id > $2
            ORDER BY id LIMIT $3"""
        rows = yield Query(text, (swarm, after, limit))
        return [WebhookRow(*row) for row in rows]

    @write
    def change_webhook(self, swarm: str, change: WebhookChange) -> Verb[bool]:
        """Commit what came of an attempt, and tell whether there is such a message."""
        if change.state == "done":
            count = yield Change(f"DELETE FROM webhooks WHERE {_THIS}", (swarm, change.id))
        else:
            count = yield Change(_CHANGE, (swarm, *change))
        return bool(count)

    @write
    def retry_webhook(self, swarm: str, number: int, now: str) -> Verb[bool]:
        """Let a message be sent at once, as if it had just been written; tell whether there is one.

        Args:
            swarm: The swarm.
            number: The message.
            now: RFC 3339 text in UTC.
        """
        count = yield Change(_RETRY, (swarm, number, now))
        return bool(count)

    @write
    def give_up_webhooks(self, swarm: str, before: str, reason: str) -> Verb[int]:
        """Give up the waiting messages that were written before a time; return how many."""
        count: int = yield Change(_GIVE_UP, (swarm, before, reason))
        return count
