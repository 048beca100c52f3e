"""Outgoing messages: ids, times and swarm fields are filled in one place."""

import uuid
from datetime import UTC, datetime

from mail.clock import SystemClock
from mail.core.addresses import create_agent_address
from mail.core.compose import Composer, Subject
from mail.core.message import parse_message


class Counting:
    """A clock that counts."""

    def __init__(self) -> None:
        self.count = 0

    def now(self) -> str:
        return "2026-01-01T00:00:00+00:00"

    def new_id(self) -> str:
        self.count += 1
        return f"id-{self.count}"


A, B = create_agent_address("a"), create_agent_address("b")


def test_a_message_gets_fresh_ids_the_time_and_the_swarm() -> None:
    composer = Composer("harbour", Counting())
    wire = composer.message("request", "t", A, [B], "s", "b").to_wire()
    assert wire["timestamp"] == "2026-01-01T00:00:00+00:00"
    assert wire["id"] != wire["message"]["request_id"]
    assert wire["message"]["sender_swarm"] == wire["message"]["recipient_swarm"] == "harbour"
    assert parse_message(wire) == wire


def test_given_ids_are_kept_and_none_is_drawn() -> None:
    clock = Counting()
    envelope = Composer("harbour", clock).message(
        "response", "t", A, [B], "s", "b", ref="the-request", message_id="the-message"
    )
    assert (envelope.ref, envelope.id, clock.count) == ("the-request", "the-message", 0)


def test_a_completion_goes_to_everybody() -> None:
    wire = Composer("harbour", Counting()).completion("t", A, "the answer").to_wire()
    assert wire["msg_type"] == "broadcast_complete"
    assert wire["message"]["recipients"] == [{"address_type": "agent", "address": "all"}]
    assert wire["message"]["subject"] == "::task_complete::"
    assert wire["message"]["body"] == "the answer"


def test_the_system_writes_in_the_name_of_its_swarm() -> None:
    composer = Composer("harbour", Counting())
    system = {"address_type": "system", "address": "harbour"}
    assert composer.system_completion("t", Subject.TASK_ERROR, "why").sender == system
    notice = composer.notice("t", "a", Subject.HELP, "text")
    assert (notice.sender, notice.recipients, notice.kind) == (system, (A,), "response")


def test_system_subjects_are_recognisable_and_plain_text() -> None:
    for subject in Subject:
        assert subject.startswith("::") and subject.endswith("::")
        assert type(Composer("s", Counting()).notice("t", "a", subject, "").to_wire()) is dict
        assert f"{subject}" == subject.value


def test_ids_of_the_system_are_random_uuids() -> None:
    clock = SystemClock()
    ids = [clock.new_id() for _ in range(200)]
    assert len(set(ids)) == len(ids)
    for each in ids:
        read = uuid.UUID(each)
        assert (str(read), read.version, read.variant) == (each, 4, uuid.RFC_4122)


def test_times_of_the_system_are_those_of_the_moment() -> None:
    clock = SystemClock()
    for _ in range(3):  # also within a second that is known already
        before = datetime.now(UTC).isoformat(timespec="microseconds")
        now = clock.now()
        after = datetime.now(UTC).isoformat(timespec="microseconds")
        assert before <= now <= after
