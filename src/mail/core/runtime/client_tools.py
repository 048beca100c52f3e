"""The offer of a run's caller: checked at the door, kept with the task, shown to its entrypoint.

It is stored among the owner's memories, in the commit that opens the run, so that a run that goes
on in another process has the tools that it began with.
"""

from collections.abc import Sequence
from typing import Any, Final

from mail.core.agents import ToolChoice
from mail.core.runtime.active_tasks import ActiveTask
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.turn import ControlKind, Turn
from mail.core.tasks import TaskState
from mail.core.tools.call import INVALID_JSON_KEY, AgentToolCall
from mail.core.tools.catalogue import BUILTIN_TOOLS, CATALOGUE, TEXT_TOOL
from mail.core.tools.offer import NO_OFFER, Offer
from mail.db.base import MemoryRow
from mail.errors import ProtocolError

__all__ = [
    "ONE_AT_A_TIME",
    "check_offer",
    "forced_by_offer",
    "load_offer",
    "next_offer",
    "offer_for",
    "offer_rows",
    "take_back",
    "without_surplus",
]

ONE_AT_A_TIME: Final = "not run: call one such tool at a time; make this call again later"

_NAMESPACE: Final = ("mail:offers",)


def check_offer(offer: Offer, context: RuntimeContext) -> None:
    """Refuse tools whose calls could not be told from the swarm's own.

    Raises:
        ProtocolError: a tool without a name, two of one name, a name that the swarm uses, or a
            forced tool that is not there.
    """
    taken = {*CATALOGUE, *BUILTIN_TOOLS, TEXT_TOOL, *context.actions}
    for agent in context.agents.values():
        taken.update(agent.actions or ())
    names = offer.names
    if len(names) != len(offer.tools):
        raise ProtocolError("each offered tool needs a unique name")
    clash = sorted(names & taken)
    if clash:
        raise ProtocolError(f"the swarm already has a tool named '{clash[0]}'; choose another name")
    if offer.force is not None and offer.force not in names | {"required"}:
        raise ProtocolError(f"the forced tool '{offer.force}' is not one of the offered tools")
    if offer.force is not None and not names:
        raise ProtocolError("a tool call is required, but no tool is offered")


def next_offer(task: ActiveTask, given: Offer | None, *, keeps: bool) -> Offer:
    """Return the offer of the run that is about to begin, or to go on.

    Args:
        task: The task.
        given: What the caller brought, or None.
        keeps: Whether the run before is not over, so that its offer holds when none is brought.
    """
    if given is not None:
        return given
    return task.offer if keeps else NO_OFFER


def offer_rows(task: ActiveTask, before: Offer, now: str) -> tuple[MemoryRow, ...]:
    """Return what stores the task's offer, if it is another than before."""
    if task.offer == before:
        return ()
    return (MemoryRow(_NAMESPACE, task.task_id, task.offer.to_json(), now, now),)


def take_back(task: ActiveTask, now: str) -> tuple[MemoryRow, ...]:
    """Take the offer of a run back that is over; return what stores that."""
    if task.row.state in (TaskState.RUNNING, TaskState.PAUSED):
        return ()
    before, task.offer = task.offer, NO_OFFER
    return offer_rows(task, before, now)


async def load_offer(context: RuntimeContext, task_id: str) -> Offer:
    """Read the offer of a task."""
    row = await context.store.get_memory(context.owner, _NAMESPACE, task_id)
    return NO_OFFER if row is None else Offer.from_json(row.value)


def offer_for(turn: Turn) -> Offer:
    """Return what a turn's agent is offered."""
    mine = turn.agent == turn.task.row.entrypoint and turn.manual is None
    return turn.task.offer if mine else NO_OFFER


def forced_by_offer(turn: Turn) -> ToolChoice | None:
    """Return the choice that the caller forces on the turn that takes its message or results."""
    offer, control = offer_for(turn), turn.control
    if offer.force is None or (control is not None and control.kind is not ControlKind.RESUME):
        return None
    if control is None and turn.envelope.sender["address_type"] not in ("user", "admin"):
        return None
    if offer.force == "required":
        return "required"
    choice: dict[str, Any] = {"type": "function", "name": offer.force}
    return choice


def without_surplus(
    turn: Turn, calls: Sequence[AgentToolCall]
) -> tuple[list[AgentToolCall], list[AgentToolCall]]:
    """Return (the calls that count, calls of offered tools beyond the one that is allowed)."""
    offer = offer_for(turn)
    if offer.parallel:
        return list(calls), []
    kept: list[AgentToolCall] = []
    surplus: list[AgentToolCall] = []
    seen = False
    for call in calls:
        offered = call.tool_name in offer.names and INVALID_JSON_KEY not in call.tool_args
        (surplus if offered and seen else kept).append(call)
        seen = seen or offered
    return kept, surplus
