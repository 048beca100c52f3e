"""What a turn has produced so far and will commit together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json, to_json

from mail.core.envelope import Envelope
from mail.core.runtime.histories import Entry
from mail.core.runtime.turn import EventDraft, Reprompt, ToolOutcome
from mail.core.tools.call import AgentToolCall
from mail.db.base import CallRow, EventRow, JournalRow, MemoryRow

__all__ = ["REPLY_KEY", "Reply", "TurnResult"]

REPLY_KEY = "reply"


@dataclass(frozen=True, slots=True)
class Reply:
    """What an agent function returned."""

    text: str | None
    calls: list[AgentToolCall]

    def to_json(self) -> str:
        """Return the reply as JSON for the journal."""
        calls = [call.model_dump() for call in self.calls]
        return to_json({"text": self.text, "calls": calls}).decode()

    @classmethod
    def from_json(cls, text: str) -> "Reply":
        """Read what `to_json` wrote."""
        raw = from_json(text)
        return cls(raw["text"], [AgentToolCall.model_validate(call) for call in raw["calls"]])


@dataclass(slots=True, eq=False)
class TurnResult:
    """The parts of the turn's next commit.

    ``now`` tells the time of an event. ``entries`` belong to the agent's history; agents share
    them, so the store gets what `remember` has written. ``events`` and ``journal`` may be committed
    earlier by a journal commit, which empties them here. ``paused`` are its breakpoint calls.
    ``spoken`` is the message that ends a manual step, ``told`` why the agent failed.
    """

    now: Callable[[], str]
    entries: list[Entry] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    journal: list[JournalRow] = field(default_factory=list)
    mail: list[Envelope] = field(default_factory=list)
    memories: list[MemoryRow] = field(default_factory=list)
    paused: list[AgentToolCall] = field(default_factory=list)
    reprompts: list[Reprompt] = field(default_factory=list)
    completes: str | None = None
    spoken: Envelope | None = None
    failure: str | None = None
    told: str | None = None
    _written: list[str] = field(default_factory=list)

    @property
    def history(self) -> str:
        """The entries as a JSON list, or no text when there are none."""
        return f"[{','.join(self._written)}]" if self._written else ""

    def remember(self, *entries: Entry) -> None:
        """Add entries to the agent's history, and write them down as they are now.

        Raises:
            ValueError: JSON cannot hold what an agent put into one.
        """
        self.entries.extend(entries)
        for entry in entries:
            self._written.append(to_json(entry).decode())

    def log(self, kind: str, description: str = "", **extra: Any) -> None:
        """Add an event."""
        self.events.append(
            EventRow(kind, self.now(), description, to_json(extra).decode() if extra else "{}")
        )

    def take(self, call: AgentToolCall, outcome: ToolOutcome) -> None:
        """Add what a handler decided about a call."""
        self.remember(call.create_response_msg(outcome.tool_result()))
        for event in outcome.events:
            self.events.append(event.row(self.now()))
        self.mail.extend(outcome.mail)
        self.memories.extend(outcome.memories)
        if outcome.completes is not None:
            self.completes = outcome.completes
        if outcome.reprompt is not None:
            self.reprompts.append(outcome.reprompt)

    def journal_row(self, key: str, state: str, payload: Any) -> None:
        """Add a fact to the journal."""
        self.journal.append(JournalRow(key, state, to_json(payload).decode()))

    def close_paused(self, answer: str) -> None:
        """Answer the breakpoint calls here and now: the task does not pause on them."""
        self.remember(*(call.create_response_msg(answer) for call in self.paused))
        self.paused.clear()

    def pause_event(self, agent: str, calls: Sequence[CallRow]) -> EventDraft:
        """Return the event of an agent's breakpoint calls, once they have their ids."""
        names = ", ".join(call.tool_name for call in self.paused)
        arguments = ", ".join(to_json(call.tool_args).decode() for call in self.paused)
        return EventDraft(
            "breakpoint_tool_call",
            f"agent {agent} used breakpoint tools {names} with args: {arguments}",
            {"caller": agent, "call_ids": [call.call_id for call in calls]},
        )
