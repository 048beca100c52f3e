"""Agents that wait for a teammate's reply: ``teammate_message`` with ``waitForReply``.

The call stays open when its turn ends, as a breakpoint's does, but the task goes on: only the
agent's lane is blocked. The open call is stored with its deadline, in the commit that sends the
message. `mail.core.runtime.teams` begins and ends waits.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from mail.clock import later
from mail.core.envelope import Envelope
from mail.core.runtime.correspondence import post_of
from mail.core.runtime.ledger import Ledger
from mail.core.runtime.turn import Control
from mail.core.tools.call import AgentToolCall, to_be_answered
from mail.db.calls import CallRow


class WaitDraft(NamedTuple):
    """A wait that a handler wants, once its turn is stored.

    Attributes:
        teammate: The teammate whose reply is awaited.
        called: The teammate's name in the team.
        ref: The payload's id of the message that asks for it.
        told: The result of the call as far as it is known: the message's id and so on.
        seconds: The length of the wait.
    """

    teammate: str
    called: str
    ref: str
    told: dict[str, Any]
    seconds: float

    def result(self, status: str, **more: Any) -> str:
        """Return the result of the call, once it is known how the wait ends."""
        return to_json({**self.told, "status": status, **more}).decode()


@dataclass(slots=True, eq=False)
class TeamWait:
    """An open wait.

    Attributes:
        row: The open call, as it is stored.
        draft: The wait.
        until: The time at which it ends.
        control: The instruction to the turn that goes on with the result.
        timer: Ends it in time; none until it is stored.
    """

    row: CallRow
    draft: WaitDraft
    until: str
    control: Control
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    @classmethod
    def begin(
        cls,
        agent: str,
        call: AgentToolCall,
        draft: WaitDraft,
        control: Control,
        *,
        now: str,
    ) -> "TeamWait":
        """Make the wait that an agent's call begins, with a name that no other call ever has."""
        until = later(now, draft.seconds)
        kept = to_json({"wait": draft, "until": until, "control": control.to_json()}).decode()
        row = CallRow(agent, draft.ref, to_be_answered(call), "", control=kept, kind="wait")
        return cls(row, draft, until, control)

    @classmethod
    def of_row(cls, row: CallRow) -> "TeamWait":
        """Read an open wait from the store."""
        kept = from_json(row.control or "{}")
        control = Control.from_json(kept["control"])
        assert control is not None  # noqa: S101 - `begin` wrote it
        return cls(row, WaitDraft(*kept["wait"]), kept["until"], control)

    @property
    def key(self) -> tuple[str, str]:
        """Its place among the waits of its task."""
        return self.row.agent, self.row.call_id

    @property
    def teammate(self) -> str:
        """The teammate whose reply is awaited."""
        return self.draft.teammate

    def remaining(self, now: str) -> float:
        """Return how many seconds are left, at least 0."""
        left = datetime.fromisoformat(self.until) - datetime.fromisoformat(now).astimezone(UTC)
        return max(0.0, left.total_seconds())

    def is_reply(self, envelope: Envelope, asks: Ledger) -> bool:
        """Tell whether a message to the waiting agent is what it waits for.

        That is the first one that the teammate sends to it alone, unless it answers another
        request that is open.
        """
        sender = envelope.sender
        if sender["address_type"] != "agent" or sender["address"] != self.teammate:
            return False
        if envelope.kind == "response" and envelope.ref != self.draft.ref:
            return envelope.ref not in asks.refs(self.row.agent, self.teammate)
        alone = len(envelope.recipients) == 1 and envelope.recipients[0]["address"] != "all"
        return alone and envelope.kind in ("request", "response", "interrupt")

    def replied(self, envelope: Envelope) -> str:
        """Return the result with a reply, and apart from it what came before in its thread."""
        earlier, message = post_of(envelope)
        reply = {"messageId": envelope.id, "from": self.draft.called, "message": message}
        if earlier:
            reply["earlier"] = earlier
        return self.draft.result("replied", reply=reply)

    def stop(self) -> None:
        """Stop its timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
