"""The ledger of open questions: what opens and closes one, and what a draft leaves alone."""

from typing import Any

from mail.core.addresses import MAILAddress, create_agent_address, create_user_address
from mail.core.envelope import Envelope
from mail.core.runtime.ledger import Ledger
from mail.db.ledger import LedgerPart, Question

PEER = "wind@weather"


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


def keys(ledger: Ledger) -> list[tuple[str, str, str, str]]:
    return [(each.asker, each.asked, each.ref, each.kind) for each in ledger.all()]


def test_a_request_opens_a_question_and_its_response_closes_it() -> None:
    ledger = noted(message("request", "lead", "worker"), message("request", "lead", "writer", "r2"))
    assert ledger.refs("lead", "worker") == ["r1"]
    assert ledger.pairs() == [("lead", "worker"), ("lead", "writer")]
    ledger.note(message("response", "worker", "lead", "other"), "harbour")
    ledger.note(message("response", "worker", "lead"), "harbour")
    assert keys(ledger) == [("lead", "writer", "r2", "agent")]


def test_users_broadcasts_and_participants_letters_open_none() -> None:
    ledger = noted(
        message("request", create_user_address("ines"), "lead"),
        message("broadcast", "lead", "worker"),
        message("request", "ops", "lead"),
        message("request", "lead", "ops"),
        guests=frozenset({"ops"}),
    )
    assert ledger.all() == []


def test_any_agent_of_a_swarm_may_answer_for_its_swarm() -> None:
    ledger = noted(message("request", "lead", PEER), message("request", PEER, "lead", "r2"))
    assert [each.kind for each in ledger.all()] == ["peer", "for_peer"]
    assert ledger.waits("peer") and ledger.waits("for_peer")
    ledger.note(message("response", "rain@weather", "lead"), "harbour")
    assert not ledger.waits("peer")
    ledger.note(message("response", "worker", PEER, "r2"), "harbour")
    assert ledger.all() == []


def test_the_end_of_a_run_waits_for_nobody_but_leaves_what_may_still_be_answered() -> None:
    ledger = noted(
        message("request", "lead", PEER, "out"),
        message("request", PEER, "lead", "read"),
        message("request", PEER, "lead", "unread"),
    )
    ledger.end({"id of unread"})
    assert keys(ledger) == [
        (PEER, "lead", "read", "agent"),
        (PEER, "lead", "unread", "for_peer"),
    ]
    assert ledger.pairs() == []  # nobody here waits
    ledger.forget("weather")
    assert ledger.all() == []


def test_the_newest_questions_of_two_agents_are_kept() -> None:
    ledger = noted(*(message("request", "lead", "worker", f"r{n}") for n in range(1000)))
    kept = ledger.refs("lead", "worker")
    assert 64 <= len(kept) <= 128
    assert kept == [f"r{n}" for n in range(1000 - len(kept), 1000)]


def test_a_draft_changes_nothing_until_it_is_adopted() -> None:
    ledger = Ledger.of([Question("lead", "worker", "r1", number=4)])
    draft = ledger.draft()
    draft.note(message("response", "worker", "lead"), "harbour")
    draft.note(message("request", "lead", PEER, "r2"), "harbour")
    assert keys(ledger) == [("lead", "worker", "r1", "agent")]
    opened = Question("lead", PEER, "r2", "peer", "id of r2", 5)
    assert draft.changed() == LedgerPart((opened,), (4,))
    ledger.adopt(draft, stored=True)
    assert ledger.all() == [opened]
    assert ledger.draft().changed() is None


def test_what_a_draft_opens_and_closes_is_not_stored() -> None:
    draft = Ledger().draft()
    draft.note(message("request", "lead", "worker"), "harbour")
    draft.note(message("response", "worker", "lead"), "harbour")
    assert draft.changed() is None


def test_a_ledger_that_the_store_does_not_have_is_stored_whole() -> None:
    old = Question("lead", "worker", "r1", number=1)
    letter = Question("lead", "ops", "l1", "participant", number=2)
    ledger = Ledger.of([old, letter], first=True)
    draft = ledger.draft()
    draft.note(message("request", "lead", "writer", "r2"), "harbour")
    new = Question("lead", "writer", "r2", "agent", "id of r2", 3)
    assert draft.changed() == LedgerPart((old, new), first=True)
    ledger.adopt(ledger.draft(), stored=False)  # a change that stored nothing
    assert ledger.draft().changed() == LedgerPart((old,), first=True)
    ledger.adopt(draft, stored=True)
    assert ledger.draft().changed() is None


def test_questions_of_letters_go_with_the_letters() -> None:
    ledger = Ledger.of([Question("lead", "ops", "l1", "participant")])
    draft = ledger.draft()
    answered = draft.find("participant", "l1", asked="ops")
    assert answered is not None and draft.find("participant", "l1", asked="other") is None
    draft.close(answered)
    draft.open(Question("ops", "lead", "l2", "for_participant", thread_id="th1"))
    assert draft.changed() is None
    opened, closed = draft.letters()
    assert [each.ref for each in opened] == ["l2"]
    assert [each.ref for each in closed] == ["l1"]
