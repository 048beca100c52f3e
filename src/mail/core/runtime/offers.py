"""Tools and instructions that the caller of a run lends its entrypoint.

An offer is stored among the owner's memories, in the commit that opens the run, so that a run that
goes on in another process has the tools that it began with.
"""

from typing import Final

from mail.core.runtime.active_tasks import TaskMemory
from mail.core.runtime.context import RuntimeContext
from mail.core.tools.catalogue import BUILTIN_TOOLS, CATALOGUE, TEXT_TOOL
from mail.core.tools.offer import NO_OFFER, Offer
from mail.db.records import MemoryRow
from mail.errors import ProtocolError

_OFFERS: Final = ("mail:offers",)


def check_offer(offer: Offer, context: RuntimeContext) -> None:
    """Refuse tools whose calls could not be told from the swarm's own.

    Raises:
        ProtocolError: a tool without a name, two of one name, a name that the swarm uses, or a
            forced tool that is not there.
    """
    taken = {*CATALOGUE, *BUILTIN_TOOLS, TEXT_TOOL, *context.parts.actions}
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


def offer_row(task: TaskMemory, now: str) -> MemoryRow:
    """Return what stores the task's offer."""
    return MemoryRow(_OFFERS, task.task_id, task.offer.to_json(), now, now)


def take_back(task: TaskMemory, now: str) -> tuple[MemoryRow, ...]:
    """Take the offer of a run back that is over; return what stores that."""
    if task.row.state.is_open:
        return ()
    before, task.offer = task.offer, NO_OFFER
    return () if before == NO_OFFER else (offer_row(task, now),)


async def load_offer(context: RuntimeContext, task_id: str) -> Offer:
    """Read the offer of a task."""
    row = await context.store.get_memory(context.owner, _OFFERS, task_id)
    return NO_OFFER if row is None else Offer.from_json(row.value)
