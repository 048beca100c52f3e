"""Builders of outgoing messages: the only place that fills ids, timestamps and swarm fields."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from mail.clock import Clock, format_uuid
from mail.core.addresses import (
    MAIL_ALL_LOCAL_AGENTS,
    MAILAddress,
    create_agent_address,
    create_system_address,
)
from mail.core.envelope import Envelope
from mail.core.render import FAILURE
from mail.core.wire import MessageKind


class Subject(StrEnum):
    """Subjects that the system itself uses. They inform; no code acts on them (MAIL-DATA-13)."""

    ACTION_COMPLETE = "::action_complete::"
    ACTION_COMPLETE_BROADCAST = "::action_complete_broadcast::"
    ACTION_ERROR = "::action_error::"
    ACTION_OUTCOME_UNKNOWN = "::action_outcome_unknown::"
    AGENT_ERROR = FAILURE
    BREAKPOINT_TOOL_CALL = "::breakpoint_tool_call::"
    BROADCAST_SETTLED = "::broadcast_settled::"
    DELIVERY_DELAYED = "::delivery_delayed::"
    HELP = "::help::"
    MANUAL_STEP = "::manual_step::"
    MAXIMUM_STEPS_REACHED = "::maximum_steps_reached::"
    SHUTDOWN_REQUESTED = "::shutdown_requested::"
    TASK_CANCELLED = "::task_cancelled::"
    TASK_COMPLETE = "::task_complete::"
    TASK_ERROR = "::task_error::"
    TASK_STALLED = "::task_stalled::"
    TASK_TIMEOUT = "::task_timeout::"
    TOOL_CALL_ERROR = "::tool_call_error::"
    UNDELIVERABLE = "::undeliverable::"


def derived_id(text: str) -> str:
    """Return an id that is always the same for the same text."""
    return format_uuid(hashlib.sha256(text.encode()).digest()[:16], version=8)


@dataclass(frozen=True, slots=True)
class Composer:
    """Builds messages of one swarm."""

    swarm: str
    clock: Clock

    def message(  # noqa: PLR0913 - the fields of a message
        self,
        kind: MessageKind,
        task_id: str,
        sender: MAILAddress,
        recipients: Iterable[MAILAddress],
        subject: str,
        body: str,
        *,
        ref: str | None = None,
        message_id: str | None = None,
        routing_info: Mapping[str, Any] = MappingProxyType({}),
        timestamp: str | None = None,
    ) -> Envelope:
        """Build a message of any kind inside the swarm.

        Args:
            ref: The payload's own id; for a response, the id of the request it answers.
            message_id: A given id for the message, in place of a random one.
            routing_info: Notes for whoever routes the message.
            timestamp: The time of sending, if that is not now.
        """
        return Envelope(  # in order: a named tuple takes twice as long by names
            message_id or self.clock.new_id(),
            self.clock.now() if timestamp is None else timestamp,
            kind,
            task_id,
            ref or self.clock.new_id(),
            sender,
            tuple(recipients),
            subject,
            body,
            self.swarm,
            (self.swarm,),
            routing_info,
        )

    def completion(
        self,
        task_id: str,
        sender: MAILAddress,
        body: str,
        subject: str = Subject.TASK_COMPLETE,
        timestamp: str | None = None,
    ) -> Envelope:
        """Build the ``broadcast_complete`` that ends a run."""
        to = [MAIL_ALL_LOCAL_AGENTS]
        return self.message(
            "broadcast_complete", task_id, sender, to, subject, body, timestamp=timestamp
        )

    def system_completion(
        self, task_id: str, subject: str, body: str, timestamp: str | None = None
    ) -> Envelope:
        """Build a ``broadcast_complete`` in the system's own name."""
        return self.completion(task_id, self.system_address, body, subject, timestamp)

    def notice(self, task_id: str, agent: str, subject: str, body: str) -> Envelope:
        """Build a system response to one local agent."""
        to = [create_agent_address(agent)]
        return self.message("response", task_id, self.system_address, to, subject, body)

    @property
    def system_address(self) -> MAILAddress:
        """The address of the system, named after the swarm."""
        return create_system_address(self.swarm)
