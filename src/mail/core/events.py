"""The kinds of task events and the event record shared by log, streams and client."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mail.core.large import in_turn, json_line
from mail.core.render import mail_xml

EVENT_KINDS: Final = frozenset(
    {
        "new_message",
        "tool_call",
        "action_call",
        "action_complete",
        "action_error",
        "agent_error",
        "approval_answered",
        "approval_expired",
        "approval_requested",
        "await_message",
        "breakpoint_action_complete",
        "breakpoint_tool_call",
        "broadcast_ignored",
        "builtin_tool_call",
        "help_called",
        "interswarm_message_error",
        "interswarm_message_received",
        "interswarm_message_sent",
        "letter_receipt",
        "mail_discarded",
        "mail_retried",
        "mail_set_aside",
        "memory_update_failed",
        "memory_update_rejected",
        "memory_updated",
        "model_retry",
        "model_usage",
        "run_loop_cancelled",
        "run_loop_error",
        "shutdown_requested",
        "task_complete",
        "task_complete_call",
        "task_complete_call_duplicate",
        "task_error",
        "turn_interrupted",
        "turn_restarted",
    }
)
"""Events that are stored and carry a sequence number."""

STREAM_KINDS: Final = frozenset({"ping", "model_delta", "server_drain"})
"""Events that exist on a stream only: no id, not stored, not replayed (MAIL-EVT-8)."""

TERMINAL_KINDS: Final = frozenset({"task_complete", "task_error"})
"""The events that end a run; one per run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEvent:
    """One entry of a task's log.

    ``seq`` counts from 1 within the task (0: not stored). ``extra`` holds the kind's own fields:
    under ``extra_data`` on the wire, or beside it for terminal events. ``size`` is what the store
    keeps of it, in bytes (0: not known).
    """

    task_id: str
    kind: str
    timestamp: str
    seq: int = 0
    description: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    size: int = field(default=0, compare=False)

    @property
    def event(self) -> str:
        """The kind, under the name that server-sent events use."""
        return self.kind

    @property
    def id(self) -> str | None:
        """The sequence number as text, or None for an event that is not stored."""
        return str(self.seq) if self.seq else None

    @property
    def data(self) -> dict[str, Any]:
        """The documented payload: timestamp, description, task_id, extra_data (and more)."""
        base: dict[str, Any] = {"timestamp": self.timestamp, "task_id": self.task_id}
        if self.kind in STREAM_KINDS:
            return {**base, **self.extra}
        base["description"] = self.describe()
        if self.kind in TERMINAL_KINDS:
            return {**base, "extra_data": {}, **self.extra}
        return {**base, "extra_data": dict(self.extra)}

    def describe(self) -> str:
        """Return the description; the XML of a message is rendered here, when it is asked for."""
        message = self.extra.get("full_message") if self.kind == "new_message" else None
        if message is None:
            return self.description
        return f"{self.description or 'sending message:'}\n{mail_xml(message)}"

    def to_record(self, *, as_text: bool = False) -> dict[str, Any]:
        """Return the event as a JSON-ready record with ``event``, ``id``, ``retry``, ``data``.

        Args:
            as_text: Give ``data`` as JSON text, as the records of tasks do.
        """
        data = self.data_text() if as_text else self.data
        return {"event": self.kind, "id": self.id, "retry": None, "data": data}

    async def record_text(self, *, as_text: bool) -> str:
        """Return `to_record` as JSON; a large one is made in its turn."""
        return await in_turn(self.size, lambda: json_line(self.to_record(as_text=as_text)))

    def data_text(self) -> str:
        """Return ``data`` as one line of JSON."""
        return json_line(self.data)
