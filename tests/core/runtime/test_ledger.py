"""The ledger of open questions: what opens and closes one, and what a draft leaves alone."""

from typing import Any

from mail.core.addresses import MAILAddress, create_agent_address
from mail.core.envelope import Envelope
from mail.core.runtime.ledger import Ledger


def message(kind: Any, sender: str | MAILAddress, to: str, ref: str = "r1") -> Envelope:
    own = create_agent_address(sender) if isinstance(sender, str) else sender
    return Envelope(
        id=f"id of {ref}",
        timestamp="2026-01-01T10:00:00+00:00",
        kind=kind,
        task_id="t1",
        ref=ref,
        sender=own,
        recipients=(create_agent_address(to),),
        subject="s",
        body="b",
        sender_swarm="harbour",
        recipient_swarms=("harbour",),
        routing_info={},
        file_id="",
    )


def noted(*messages: Envelope, guests: frozenset[str] = frozenset()) -> Ledger:
    ledger = Ledger()
    for each in messages:
        ledger.note(each, "harbour", guests)
    return ledger


def test_the_newest_questions_of_two_agents_are_kept() -> None:
    ledger = noted(*(message("request", "lead", "worker", f"r{n}") for n in range(1000)))
    kept = ledger.refs("lead", "worker")
    assert 64 <= len(kept) <= 128
    assert kept == [f"r{n}" for n in range(1000 - len(kept), 1000)]
