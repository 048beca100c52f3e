"""A task as its owner sees it: who takes part, how far it is, what happened."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from mail.core.events import TaskEvent
from mail.core.usage import Usage
from mail.core.wire import MAILMessage

STEP_LIMIT: Final = "step_limit"
"""The value of ``ended_by`` for a run that had processed as many messages as it may."""


class TaskState(StrEnum):
    """The state of a task. Only a running task's mail is processed."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_open(self) -> bool:
        """Tell whether its run has not ended: it is running or paused."""
        return self in (TaskState.RUNNING, TaskState.PAUSED)


@dataclass(slots=True, kw_only=True)
class MAILTask:
    """The documented task record (docs: ``TaskRecord``).

    ``task_message_queue`` holds the mail that waits for the task to be resumed (the stash), as
    wire messages in the order in which they would be processed. ``via`` is the swarm that a peer's
    task came from, which has told its owner. ``usage`` is what the model calls
    of each agent have used, in all runs of the task. ``waiting_for`` are the agents of other swarms
    (``agent@swarm``) and the participants that owe the task an answer. ``event_count``
    and ``task_message_count`` tell how much there is in the store, whatever was read of it.
    ``ended_by`` is `STEP_LIMIT` if that ended the last run, else None.
    """

    task_id: str
    task_owner: str
    task_contributors: list[str]
    via: str | None = None
    start_time: datetime = field(default_factory=lambda: datetime.now(UTC))
    events: list[TaskEvent] = field(default_factory=list)
    status: TaskState = TaskState.RUNNING
    task_message_queue: list[MAILMessage] = field(default_factory=list)
    remote_swarms: list[str] = field(default_factory=list)
    waiting_for: list[str] = field(default_factory=list)
    breakpoints: list[dict[str, Any]] = field(default_factory=list)
    title: str | None = None
    usage: dict[str, Usage] = field(default_factory=dict)
    event_count: int = 0
    task_message_count: int = 0
    ended_by: str | None = None

    @property
    def total_usage(self) -> Usage:
        """The use of all model calls of the task together."""
        return Usage.sum(self.usage.values())

    @property
    def is_running(self) -> bool:
        """Tell whether the task's mail is being processed."""
        return self.status is TaskState.RUNNING

    @property
    def completed(self) -> bool:
        """Tell whether the last run ended with an answer."""
        return self.status is TaskState.COMPLETED

    def get_messages(self) -> list[MAILMessage]:
        """Return every message of the task in the order in which it was sent."""
        return [
            event.extra["full_message"]
            for event in self.events
            if event.kind == "new_message" and "full_message" in event.extra
        ]

    def get_messages_by_agent(
        self, agent: str, sent: bool = True, received: bool = True
    ) -> list[MAILMessage]:
        """Return an agent's messages: first those it sent, then those it received."""
        address = {"address_type": "agent", "address": agent}
        messages = self.get_messages()
        outgoing = [m for m in messages if sent and m["message"]["sender"] == address]
        incoming = [m for m in messages if received and address in _recipients(m)]
        return outgoing + incoming

    def get_messages_by_type(self, msg_type: str) -> list[MAILMessage]:
        """Return the messages of one type."""
        return [m for m in self.get_messages() if m["msg_type"] == msg_type]

    def get_messages_by_system(self) -> list[MAILMessage]:
        """Return the messages that the system sent."""
        return self._sent_by("system")

    def get_messages_by_user(self) -> list[MAILMessage]:
        """Return the messages that users sent."""
        return self._sent_by("user")

    def get_lifetime(self) -> timedelta:
        """Return how long ago the task began."""
        return datetime.now(UTC) - self.start_time

    def to_record(self, *, events_as_text: bool = False) -> dict[str, Any]:
        """Return the JSON-ready record of ``GET /task``.

        Args:
            events_as_text: Give each event's ``data`` as JSON text, as ``/tasks`` and ``/task`` do.
        """
        return {
            "task_id": self.task_id,
            "task_owner": self.task_owner,
            "via": self.via,
            "task_contributors": list(self.task_contributors),
            "start_time": self.start_time.isoformat(),
            "events": [event.to_record(as_text=events_as_text) for event in self.events],
            "event_count": self.event_count,
            "is_running": self.is_running,
            "completed": self.completed,
            "status": self.status.value,
            "task_message_queue": list(self.task_message_queue),
            "task_message_count": self.task_message_count,
            "remote_swarms": sorted(self.remote_swarms),
            "waiting_for": sorted(self.waiting_for),
            "breakpoints": list(self.breakpoints),
            "title": self.title,
            "usage": {
                "total": self.total_usage.to_dict(),
                "agents": {agent: usage.to_dict() for agent, usage in self.usage.items()},
            },
            "ended_by": self.ended_by,
        }

    def _sent_by(self, address_type: str) -> list[MAILMessage]:
        return [
            m for m in self.get_messages() if m["message"]["sender"]["address_type"] == address_type
        ]


def _recipients(message: MAILMessage) -> Sequence[object]:
    payload: Any = message["message"]
    recipients: Sequence[object] = payload.get("recipients") or [payload.get("recipient")]
    return recipients
