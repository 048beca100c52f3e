"""The ledger of open questions keeps the newest ones."""

from mail.core.addresses import create_agent_address
from mail.core.envelope import Envelope
from mail.core.runtime.ledger import Ledger


def test_the_newest_questions_of_two_agents_are_kept() -> None:
    question = Envelope(
        id="1",
        timestamp="2026-01-01T10:00:00+00:00",
        kind="request",
        task_id="t1",
        ref="",
        sender=create_agent_address("lead"),
        recipients=(create_agent_address("worker"),),
        subject="s",
        body="b",
        sender_swarm="harbour",
        recipient_swarms=("harbour",),
        routing_info={},
        file_id="",
    )
    ledger = Ledger()
    for number in range(1000):
        ledger.note(question._replace(ref=f"r{number}"), "harbour", frozenset())
    kept = ledger.refs("lead", "worker")
    assert 64 <= len(kept) <= 128
    assert kept == [f"r{n}" for n in range(1000 - len(kept), 1000)]
