"""The typed view of a message and its way to the wire and back."""

from typing import Any

import pytest
from hypothesis import given
from pydantic_core import to_json

from mail.core.envelope import Envelope
from mail.core.render import build_mail_xml
from mail.core.schema import parse_message
from tests.support.messages import SINGLE, envelopes, messages, relaxed


def nulls_in(value: Any) -> bool:
    """Tell whether a field (outside free-form routing information) is null."""
    if isinstance(value, dict):
        return any(nulls_in(part) for key, part in value.items() if key != "routing_info")
    return value is None or (isinstance(value, list) and any(map(nulls_in, value)))


@relaxed
@given(envelopes())
def test_an_envelope_comes_back_from_the_wire_as_it_was(envelope) -> None:
    wire = envelope.to_wire()
    assert Envelope.from_wire(wire) == envelope
    assert Envelope.from_json(envelope.to_json()) == envelope
    assert envelope.to_json(to_json(envelope.body).decode()) == envelope.to_json()
    assert parse_message(wire) == wire


@relaxed
@given(envelopes())
def test_the_wire_form_has_no_nulls(envelope) -> None:
    assert not nulls_in(envelope.to_wire())


@relaxed
@given(messages())
def test_any_accepted_message_becomes_an_envelope_and_keeps_its_meaning(message) -> None:
    accepted = parse_message(message)
    envelope = Envelope.from_wire(accepted)
    wire = envelope.to_wire()
    for field in ("id", "timestamp", "msg_type"):
        assert wire[field] == accepted[field]
    kept = {key: value for key, value in accepted["message"].items() if value or type(value) is str}
    for field, value in kept.items():
        if field != "recipient_swarm" or value:
            assert wire["message"][field] == value


@relaxed
@given(envelopes())
def test_the_chat_entry_is_the_rendered_message(envelope) -> None:
    assert envelope.to_entry() == build_mail_xml(envelope.to_wire())


@relaxed
@given(envelopes())
def test_the_kind_decides_which_recipient_field_there_is(envelope) -> None:
    payload = envelope.to_wire()["message"]
    assert ("recipient" in payload) is (envelope.kind in SINGLE)
    assert ("recipients" in payload) is (envelope.kind not in SINGLE)


@relaxed
@given(envelopes())
def test_changing_the_wire_form_changes_no_envelope(envelope) -> None:
    before = envelope.to_json()
    wire: Any = envelope.to_wire()
    wire["message"]["sender"]["address"] = "forged"
    wire["message"]["routing_info"]["x"] = 1
    wire["message"].get("recipients", []).clear()
    assert envelope.to_json() == before


def test_an_envelope_cannot_be_changed() -> None:
    envelope = Envelope(
        id="1",
        timestamp="t",
        kind="request",
        task_id="t",
        ref="r",
        sender={"address_type": "user", "address": "ines"},
        recipients=({"address_type": "agent", "address": "tides"},),
        subject="",
        body="",
    )
    with pytest.raises(AttributeError):
        envelope.body = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        envelope.routing_info["x"] = 1  # type: ignore[index]


@relaxed
@given(messages())
def test_no_message_from_elsewhere_carries_a_file(message) -> None:
    message["message"]["routing_info"] = {"file_id": "stolen"}
    for inner in (message, message["message"]):
        inner["file_id"] = "stolen"
    found = Envelope.from_wire(message)
    assert found.file_id == ""
    assert "file_id" not in found._replace(file_id="own").to_wire()["message"]
