"""Task events as the log, streams and clients see them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mail.core.events import EVENT_KINDS, STREAM_KINDS, TERMINAL_KINDS, TaskEvent
from mail.core.render import shown_subject, xml_text
from tests.support.messages import envelopes, json_objects, relaxed, texts

TIME = "2026-01-01T00:00:00+00:00"


def event_of(kind: str, **fields) -> TaskEvent:
    return TaskEvent(**{"task_id": "t", "kind": kind, "timestamp": TIME} | fields)


def test_the_id_is_the_number_and_unstored_events_have_none() -> None:
    assert event_of("tool_call", seq=7).id == "7"
    assert event_of("ping").id is None


@pytest.mark.parametrize("kind", sorted(EVENT_KINDS - TERMINAL_KINDS))
def test_a_stored_event_has_its_fields_under_extra_data(kind) -> None:
    event = event_of(kind, description="d", extra={"caller": "a"})
    assert event.data == {
        "timestamp": TIME,
        "task_id": "t",
        "description": "d",
        "extra_data": {"caller": "a"},
    }


@pytest.mark.parametrize("kind", sorted(TERMINAL_KINDS))
def test_a_terminal_event_has_its_fields_beside_the_others(kind) -> None:
    data = event_of(kind, extra={"response": "r", "status": "completed"}).data
    assert data["response"] == "r" and data["status"] == "completed"
    assert data["extra_data"] == {}


@pytest.mark.parametrize("kind", sorted(STREAM_KINDS))
def test_a_stream_event_has_no_description(kind) -> None:
    assert event_of(kind, extra={"delta": "x"}).data == {
        "timestamp": TIME,
        "task_id": "t",
        "delta": "x",
    }


def test_no_kind_is_both_stored_and_stream_only() -> None:
    assert not EVENT_KINDS & STREAM_KINDS
    assert TERMINAL_KINDS <= EVENT_KINDS


@relaxed
@given(envelopes())
def test_a_new_message_is_described_by_its_xml(envelope) -> None:
    event = event_of("new_message", extra={"full_message": envelope.to_wire()})
    xml = envelope.to_entry()["content"]
    read = xml_text(shown_subject(envelope.subject, envelope.sender["address_type"]))
    sent = xml_text(envelope.subject)  # the log has it as it was sent
    xml = xml.replace(f"<subject>{read}</subject>", f"<subject>{sent}</subject>", 1)
    assert event.describe() == "sending message:\n" + xml
    assert event_of("new_message", description="d").describe() == "d"


@relaxed
@given(texts, json_objects, st.sampled_from(sorted(EVENT_KINDS | STREAM_KINDS)))
def test_the_data_is_one_line_of_json_whatever_is_in_it(description, extra, kind) -> None:
    extra.pop("full_message", None)
    event = event_of(kind, description=description, extra=extra)
    text = event.data_text()
    assert "\n" not in text and "\r" not in text
    assert json.loads(text) == event.data


def test_a_record_has_the_shape_of_a_server_sent_event() -> None:
    record = event_of("tool_call", seq=3).to_record()
    assert set(record) == {"event", "id", "retry", "data"}
    assert (record["event"], record["id"], record["retry"]) == ("tool_call", "3", None)
