"""The ledger of a task that an earlier version wrote: its mail and its log tell what is open.

It is read once; the next commit of the task stores it.
"""

import asyncio
from typing import Final

from pydantic_core import from_json

from mail.core.envelope import Envelope
from mail.core.events import TERMINAL_KINDS, TaskEvent
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.ledger import Ledger
from mail.core.runtime.peering import Peering, swarm_of
from mail.core.runtime.waiting import read_reports
from mail.core.tasks import TaskState
from mail.db.ledger import Question

_PAGE: Final = 256
_PAGE_BYTES: Final = 4 * 1024 * 1024


async def old_questions(context: RuntimeContext, task_id: str) -> list[Question]:
    """Return the open questions of a task that has nothing to do with other swarms."""
    ledger = Ledger()
    for delivery in await context.store.all_mail(context.owner, task_id, whole=False):
        envelope = Envelope.from_json(delivery.payload)
        ledger.note(envelope, context.swarm, context.parts.participants)
    return ledger.all()


async def old_peering(context: RuntimeContext, task_id: str) -> tuple[list[Question], Peering]:
    """Return the open questions of a task, and what it has to do with other swarms."""
    ledger, peering, after = Ledger(), Peering(), 0
    store, owner = context.store, context.owner
    while events := await store.events(owner, task_id, after, _PAGE, _PAGE_BYTES):
        for event in events:
            _replay(event, context, ledger, peering)
        after = events[-1].seq
        await asyncio.sleep(0)  # a long log must not hold up everybody else
    for question in ledger.waited("peer"):
        ledger.close(question)
    for row in await store.task_outbox(owner, task_id):
        if row.kind == "request" and row.state != "dead":
            asked = from_json(row.wrapper)["payload"]["recipient"]["address"]
            ledger.open(Question(row.sender, asked, row.ref, "peer", row.message_id))
    return ledger.all(), peering


def _replay(event: TaskEvent, context: RuntimeContext, ledger: Ledger, peering: Peering) -> None:
    """Note what the log tells."""
    extra = event.extra
    if event.kind in TERMINAL_KINDS:
        if extra.get("status") != TaskState.PAUSED:
            ledger.end(set(extra.get("unanswered", ())))
    elif event.kind == "interswarm_message_received":
        node = str(extra.get("runner", ""))
        peering.note_taken(str(extra["swarm"]), node)
        peering.hear(node, read_reports(extra.get("reports", ())))
    elif event.kind == "interswarm_message_error":
        peering.sent[str(extra["swarm"])] -= bool(extra.get("given_up"))
    elif event.kind == "new_message":
        envelope = Envelope.from_wire(extra["full_message"])
        if swarm_of(envelope.sender):
            peering.note_received(envelope)
        else:
            peering.note_sent(envelope)
        ledger.note(envelope, context.swarm, context.parts.participants)
