"""Messages to the webhook in SQL: `mail.db.webhooks.WebhookRecords`."""

from collections.abc import Iterable
from typing import Final

from mail.db import webhooks
from mail.db.statements import Dialect, Row, Step
from mail.db.webhooks import WebhookChange, WebhookRow

_COLUMNS: Final = ", ".join(WebhookRow._fields)
_WIDTH: Final = len(WebhookRow._fields)
_WAITING: Final = "swarm_name = $1 AND state = 'waiting'"

_ADD: Final = f"""
INSERT INTO webhooks (swarm_name, {", ".join(WebhookRow._fields[:-1])})
VALUES ({", ".join(f"${number}" for number in range(1, _WIDTH + 1))})
"""

_MAKE_ROOM: Final = """
DELETE FROM webhooks WHERE id IN (
    SELECT id FROM webhooks WHERE swarm_name = $1 AND owner = (
        SELECT owner FROM webhooks WHERE swarm_name = $1
        GROUP BY owner ORDER BY count(*) DESC, min(id) LIMIT 1)
    ORDER BY id LIMIT (
        SELECT CASE WHEN count(*) > $2 THEN count(*) - $2 ELSE 0 END
        FROM webhooks WHERE swarm_name = $1))
"""

_CHANGE: Final = """
UPDATE webhooks SET state = $3, attempts = $4, next_at = $5, last_error = $6
WHERE swarm_name = $1 AND id = $2 RETURNING 1
"""

_DROP: Final = "DELETE FROM webhooks WHERE swarm_name = $1 AND id = $2 RETURNING 1"

_RETRY: Final = """
UPDATE webhooks SET created_at = $3, state = 'waiting', attempts = 0, next_at = ''
WHERE swarm_name = $1 AND id = $2 RETURNING 1
"""

_GIVE_UP: Final = f"""
UPDATE webhooks SET state = 'dead', last_error = $3
WHERE {_WAITING} AND created_at < $2 RETURNING 1
"""


def webhook_steps(swarm: str, rows: Iterable[WebhookRow]) -> list[Step]:
    """Return what stores messages that a commit brings."""
    added = [(swarm, *row[:-1]) for row in rows]
    return [Step(_ADD, each=added), Step(_MAKE_ROOM, (swarm, webhooks.MOST_WEBHOOKS))]


def _rows(rows: Iterable[Row]) -> list[WebhookRow]:
    return [WebhookRow(*row) for row in rows]


def _first(rows: Iterable[Row]) -> str | None:
    found: list[str | None] = [row[0] for row in rows]
    return found[0]


class WebhookStatements(Dialect):
    """`mail.db.webhooks.WebhookRecords`."""

    async def due_webhooks(self, swarm: str, now: str, limit: int) -> list[WebhookRow]:
        text = f"""
            SELECT {_COLUMNS} FROM webhooks WHERE {_WAITING} AND next_at <= $2
            ORDER BY id LIMIT $3"""
        return await self._fetch(_rows, text, swarm, now, limit)

    async def next_webhook(self, swarm: str) -> str | None:
        return await self._fetch(
            _first, f"SELECT min(next_at) FROM webhooks WHERE {_WAITING}", swarm
        )

    async def list_webhooks(self, swarm: str, after: int, limit: int) -> list[WebhookRow]:
        text = f"""
            SELECT {_COLUMNS} FROM webhooks WHERE swarm_name = $1 AND id > $2
            ORDER BY id LIMIT $3"""
        return await self._fetch(_rows, text, swarm, after, limit)

    async def change_webhook(self, swarm: str, change: WebhookChange) -> bool:
        if change.state == "done":
            return bool(await self._change(_DROP, swarm, change.id))
        return bool(await self._change(_CHANGE, swarm, *change))

    async def retry_webhook(self, swarm: str, number: int, now: str) -> bool:
        return bool(await self._change(_RETRY, swarm, number, now))

    async def give_up_webhooks(self, swarm: str, before: str, reason: str) -> int:
        return len(await self._change(_GIVE_UP, swarm, before, reason))
