"""What a tool handler has in front of it: the turn, the swarm around it, and a composer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mail.core.addresses import MAILAddress, create_agent_address
from mail.core.agents import AgentCore
from mail.core.envelope import Envelope
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.policy import allowed_target
from mail.core.runtime.turn import Turn
from mail.core.tools.call import AgentToolCall
from mail.core.wire import MessageKind
from mail.db.base import MemoryRow

__all__ = ["ToolContext"]


@dataclass(slots=True, eq=False)
class ToolContext:
    """Handlers read from it and return a `ToolOutcome`; only the dispatcher changes anything.

    ``later`` are the calls of the reply that follow; ``produced`` tells that earlier ones sent
    messages or have the agent called again.
    """

    context: RuntimeContext
    turn: Turn
    later: Sequence[AgentToolCall] = ()
    produced: bool = False
    answered: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        """The calling agent's name."""
        return self.turn.agent

    @property
    def swarm(self) -> str:
        """The local swarm's name."""
        return self.context.swarm

    @property
    def agents(self) -> Mapping[str, AgentCore]:
        """The swarm's agents."""
        return self.context.agents

    def target(self, target: str) -> MAILAddress:
        """Return the address of an agent that the caller may write to.

        Raises:
            ToolError: it may not.
        """
        return create_agent_address(allowed_target(self.name, target, self.agents, self.swarm))

    def compose(
        self,
        kind: MessageKind,
        recipients: list[MAILAddress],
        subject: str,
        body: str,
        ref: str | None = None,
    ) -> Envelope:
        """Build a message from the calling agent; a re-run of the turn builds the same one."""
        return self.context.composer.message(
            kind,
            self.turn.task.task_id,
            create_agent_address(self.name),
            recipients,
            subject,
            body,
            ref=ref or self.turn.next_id(),
            message_id=self.turn.next_id(),
            timestamp="",  # it is sent when the turn ends
        )

    def answers(self, requester: str) -> str | None:
        """Return the newest open request that ``requester`` sent to the caller, if any."""
        for ref in reversed(self.turn.task.asks.get((requester, self.name), ())):
            if ref not in self.answered:
                self.answered.add(ref)
                return ref
        return None

    def can_expect_mail(self) -> bool:
        """Tell whether anything can still reach the task once this turn ends (MAIL-TOOL-15)."""
        task = self.turn.task
        return bool(
            self.produced
            or any(call.tool_name != "await_message" for call in self.later)
            or self.context.mailbox.waiting(task.task_id)
            or any(turn is not self.turn for turn in task.turns.values())
            or task.arriving
            or task.people - {self.turn.envelope.id}
            or task.open_calls()
        )

    async def search_memory(self, query: str, limit: int) -> list[MemoryRow]:
        """Search what the calling agent has stored."""
        return await self.context.store.search_memories(
            self.context.owner, (f"{self.name}_memory",), query, limit=limit
        )
