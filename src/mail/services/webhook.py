"""Messages to the webhook about a task: that it pauses, asks a person, or ends.

The messages are stored with the commit that they tell of; `mail.net.webhook` sends them.
Docs: ``docs/breakpoints.md``.
"""

import asyncio
from collections.abc import Collection
from typing import Any, Final

from pydantic_core import to_json

from mail.clock import Clock
from mail.core.tasks import TaskState
from mail.db.commit import Commit
from mail.db.webhooks import WebhookRow

_ENDED: Final = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED})
_LONGEST_TITLE: Final = 200
_LONGEST_NAME: Final = 256


class WebhookNews:
    """Says what the webhook is told of a commit; a `mail.core.runtime.settings.News`.

    Args:
        events: The events to tell: ``paused``, ``approval``, ``ended``.
        clock: Time and ids.
    """

    def __init__(self, events: Collection[str], clock: Clock) -> None:
        self._events = frozenset(events)
        self._clock = clock
        self._woken = asyncio.Event()

    def told_by(self, commit: Commit) -> tuple[WebhookRow, ...]:
        """Return the messages that tell of a commit."""
        if not commit.calls and not commit.snapshot:
            return ()
        state, news = commit.task.state, list[tuple[str, dict[str, Any]]]()
        if "approval" in self._events:
            asked = (row for row in commit.calls if row.approval_id and row.status == "open")
            for row in asked:  # not its arguments, and not its description
                shown = {
                    "approval_id": row.approval_id,
                    "kind": row.kind,
                    "agent": row.agent[:_LONGEST_NAME],
                    "action": row.request["action"][:_LONGEST_NAME],
                    "expires_at": row.expires_at or None,
                }
                news.append(("approval", {"approval": shown}))
        # A task whose run has ended goes on when other messages of its owner's wait.
        if commit.snapshot and state is TaskState.PAUSED and "paused" in self._events:
            news.append(("paused", {"status": state.value}))
        if commit.snapshot and state in _ENDED and "ended" in self._events:
            news.append(("ended", {"status": state.value}))
        return tuple(self._message(commit, event, more) for event, more in news)

    def wake(self) -> None:
        """Hear that there are messages to send."""
        self._woken.set()

    async def wait(self, seconds: float) -> None:
        """Wait until there are new messages, but not longer than so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    def _message(self, commit: Commit, event: str, more: dict[str, Any]) -> WebhookRow:
        owner, task = commit.owner, commit.task
        message_id, now = self._clock.new_id(), self._clock.now()
        title = task.title
        if title is not None and len(title) > _LONGEST_TITLE:
            title = f"{title[: _LONGEST_TITLE - 1]}…"
        body = {
            "id": message_id,
            "event": event,
            "swarm": owner.swarm,
            "task_id": task.task_id,
            "title": title,
            "owner": {"role": owner.role, "id": owner.id},
            "moment": now,
        }
        text = to_json(body | more).decode()
        return WebhookRow(message_id, event, task.task_id, str(owner), text, now)
