"""What the webhook is to be told: what a store knows of it."""

from collections import Counter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_WEBHOOKS: Final = 10_000
"""How many are kept for a swarm; the oldest of the owner who has most make room."""


class WebhookRow(NamedTuple):
    """One message to the webhook, kept until its receiver has taken it.

    Attributes:
        message_id: By which the receiver knows a repeated one.
        event: ``paused``, ``approval`` or ``ended``.
        task_id: The task that it tells of.
        owner: Whose task that is, as ``role:id@swarm``.
        body: What is sent, a JSON object.
        created_at: When it was written, or let go again; RFC 3339 text in UTC.
        state: ``waiting``, or ``dead``: given up.
        attempts: How often it was sent.
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


class WebhookRecords(Protocol):
    """Messages to the webhook; commits of tasks write them. They outlive their tasks."""

    async def due_webhooks(self, swarm: str, now: str, limit: int) -> list[WebhookRow]:
        """Return waiting messages that may be sent now, the oldest first.

        Args:
            swarm: The swarm.
            now: RFC 3339 text in UTC.
            limit: At most so many.
        """

    async def next_webhook(self, swarm: str) -> str | None:
        """Return the earliest ``next_at`` of a waiting message; None without any."""

    async def list_webhooks(self, swarm: str, after: int, limit: int) -> list[WebhookRow]:
        """Return a page of a swarm's messages in order of their numbers, in any state."""

    async def change_webhook(self, swarm: str, change: WebhookChange) -> bool:
        """Commit what came of an attempt, and tell whether there is such a message."""

    async def retry_webhook(self, swarm: str, number: int, now: str) -> bool:
        """Let a message be sent at once, as if it had just been written; tell whether there is one.

        Args:
            swarm: The swarm.
            number: The message.
            now: RFC 3339 text in UTC.
        """

    async def give_up_webhooks(self, swarm: str, before: str, reason: str) -> int:
        """Give up the waiting messages that were written before a time; return how many."""


class MemoryWebhooks:
    """`WebhookRecords` in dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self._webhooks: dict[int, tuple[str, WebhookRow]] = {}  # with their swarms, in order
        self._webhook_number = 0

    def _put_webhooks(self, swarm: str, rows: "Iterable[WebhookRow]") -> None:
        for row in rows:
            self._webhook_number += 1
            self._webhooks[self._webhook_number] = swarm, row._replace(id=self._webhook_number)
        kept = self._webhooks_of(swarm)
        if len(kept) > MOST_WEBHOOKS:
            [(most, _)] = Counter(row.owner for row in kept).most_common(1)
            theirs = [row.id for row in kept if row.owner == most]
            for number in theirs[: len(kept) - MOST_WEBHOOKS]:
                del self._webhooks[number]

    def _webhooks_of(self, swarm: str) -> list[WebhookRow]:
        return [row for whose, row in self._webhooks.values() if whose == swarm]

    async def due_webhooks(self, swarm: str, now: str, limit: int) -> list[WebhookRow]:
        """See `WebhookRecords.due_webhooks`."""
        rows = self._webhooks_of(swarm)
        return [row for row in rows if row.state == "waiting" and row.next_at <= now][:limit]

    async def next_webhook(self, swarm: str) -> str | None:
        """See `WebhookRecords.next_webhook`."""
        rows = self._webhooks_of(swarm)
        return min((row.next_at for row in rows if row.state == "waiting"), default=None)

    async def list_webhooks(self, swarm: str, after: int, limit: int) -> list[WebhookRow]:
        """See `WebhookRecords.list_webhooks`."""
        return [row for row in self._webhooks_of(swarm) if row.id > after][:limit]

    async def change_webhook(self, swarm: str, change: WebhookChange) -> bool:
        """See `WebhookRecords.change_webhook`."""
        whose, row = self._webhooks.get(change.id, ("", None))
        if row is None or whose != swarm:
            return False
        if change.state == "done":
            del self._webhooks[change.id]
        else:
            self._webhooks[change.id] = swarm, row._replace(**change._asdict())
        return True

    async def retry_webhook(self, swarm: str, number: int, now: str) -> bool:
        """See `WebhookRecords.retry_webhook`."""
        whose, row = self._webhooks.get(number, ("", None))
        if row is None or whose != swarm:
            return False
        self._webhooks[number] = (
            swarm,
            row._replace(created_at=now, state="waiting", attempts=0, next_at=""),
        )
        return True

    async def give_up_webhooks(self, swarm: str, before: str, reason: str) -> int:
        """See `WebhookRecords.give_up_webhooks`."""
        rows = self._webhooks_of(swarm)
        old = [row for row in rows if row.state == "waiting" and row.created_at < before]
        for row in old:
            self._webhooks[row.id] = swarm, row._replace(state="dead", last_error=reason)
        return len(old)
