"""Validation of messages from outside."""

import copy
import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from mail.core.envelope import Envelope
from mail.core.schema import check_task_id, parse_interswarm_message, parse_message
from mail.errors import ProtocolError
from tests.support.messages import (
    ID_FIELDS,
    KINDS,
    SINGLE,
    interswarm_messages,
    messages,
    mutated,
    relaxed,
)

AGENT = {"address_type": "agent", "address": "tides"}
USER = {"address_type": "user", "address": "ines"}


def message_of(kind: str = "request", **changes):
    payload = {
        "task_id": "t",
        ID_FIELDS[kind]: "r",
        "sender": USER,
        "subject": "s",
        "body": "b",
    }
    payload |= {"recipient": AGENT} if kind in SINGLE else {"recipients": [AGENT]}
    return {"id": "1", "timestamp": "now", "msg_type": kind, "message": payload | changes}


def interswarm_of(**changes):
    return {
        "message_id": "m",
        "source_swarm": "alpha",
        "target_swarm": "beta",
        "timestamp": "2026-01-01T00:00:00+00:00",
        "payload": message_of()["message"],
        "msg_type": "request",
        "task_owner": "user:ines@alpha",
        "task_contributors": ["user:ines@alpha"],
    } | changes


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_message_is_accepted_as_it_is(kind) -> None:
    assert parse_message(message_of(kind)) == message_of(kind)


@relaxed
@given(messages())
def test_what_is_accepted_is_accepted_again_unchanged(message) -> None:
    once = parse_message(copy.deepcopy(message))
    assert parse_message(json.loads(json.dumps(once))) == once == message


def test_unknown_fields_are_dropped() -> None:
    message = message_of(colour="red")
    message["extra"] = 1
    assert parse_message(message) == message_of()


def test_nulls_that_older_peers_write_are_taken() -> None:
    nulls = {"sender_swarm": None, "recipient_swarm": None, "routing_info": None}
    assert parse_message(message_of(**nulls)) == message_of(**nulls)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"task_id": 5}, "message.task_id"),
        ({"task_id": ""}, "message.task_id"),
        ({"task_id": "a\nb"}, "message.task_id"),
        ({"request_id": ""}, "message.request_id"),
        ({"request_id": "x" * 257}, "message.request_id"),
        ({"sender": "ines"}, "message.sender"),
        ({"sender": {"address_type": "swarm", "address": "x"}}, "message.sender.address_type"),
        ({"recipient": None}, "message.recipient"),
        ({"body": None}, "message.body"),
        ({"subject": ["s"]}, "message.subject"),
        ({"routing_info": []}, "message.routing_info"),
    ],
)
def test_a_wrong_field_is_named(changes, field) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_message(message_of(**changes))
    assert [problem["field"] for problem in caught.value.problems] == [field]
    assert caught.value.problems[0]["problem"] in str(caught.value)


def test_every_wrong_field_is_named_at_once() -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_message(message_of(task_id=5, body=None, sender=1))
    assert {problem["field"] for problem in caught.value.problems} == {
        "message.task_id",
        "message.body",
        "message.sender",
    }


@pytest.mark.parametrize("value", [None, 5, "text", [], {}, {"msg_type": "request"}])
def test_what_is_no_message_at_all_is_refused(value) -> None:
    with pytest.raises(ProtocolError, match="invalid MAIL message"):
        parse_message(value)


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ProtocolError, match="'buffered'; expected one of request, response, broadcast"
    ):
        parse_message(message_of() | {"msg_type": "buffered"})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"recipients": []}, "recipients must name at least one recipient"),
        ({"recipients": [AGENT, {**AGENT, "address": ""}]}, "address must not be empty"),
        ({"sender": {**USER, "address": ""}}, "address must not be empty"),
    ],
)
def test_nobody_is_no_party(changes, text) -> None:
    with pytest.raises(ProtocolError, match=text):
        parse_message(message_of("broadcast", **changes))


def test_the_wrong_value_itself_is_not_repeated_in_the_error() -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_message(message_of(subject={"token": "s3cret-value"}))
    assert "s3cret-value" not in str(caught.value) + str(caught.value.problems)


@pytest.mark.parametrize("text", ["half \ud83d", "\udc00"])
def test_text_that_no_store_can_hold_is_refused(text) -> None:
    for changes in ({"body": text}, {"routing_info": {"a": [text]}}):
        with pytest.raises(ProtocolError, match="cannot be serialised as JSON"):
            parse_message(message_of(**changes))


def test_values_that_are_no_json_are_refused() -> None:
    with pytest.raises(ProtocolError, match="cannot be serialised as JSON"):
        parse_message(message_of(routing_info={"a": object()}))


def nested(depth: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), nested(230), nested(5000)])
def test_what_could_be_stored_but_not_read_again_is_refused(value) -> None:
    with pytest.raises(ProtocolError, match="cannot be serialised as JSON"):
        parse_message(message_of(routing_info={"a": value}))
    for fields in ({"metadata": {"a": value}}, {"payload": message_of(routing_info={"a": value})}):
        with pytest.raises(ProtocolError):
            parse_interswarm_message(interswarm_of(**fields))


@pytest.mark.parametrize("depth", [1, 100, 190, *range(192, 202), 254, 256])
def test_whatever_depth_is_accepted_can_be_read_from_the_store(depth) -> None:
    try:
        message = parse_message(message_of(routing_info=nested(depth)))
    except ProtocolError:
        assert depth > 190
        return
    text = Envelope.from_wire(message).to_json()
    assert Envelope.from_json(text).to_wire() == message
    assert from_json(f'{{"full_message":{text}}}') == {"full_message": message}  # as its event


def test_free_form_fields_are_taken_as_json_will_give_them_back() -> None:
    routing = {"hops": ("a", "b"), "n": {1: 2}}
    message = parse_message(message_of(routing_info=routing))
    assert message["message"]["routing_info"] == {"hops": ["a", "b"], "n": {"1": 2}}


def test_what_the_caller_changes_afterwards_changes_no_message() -> None:
    routing = {"hops": ["a"]}
    message = parse_message(message_of(routing_info=routing))
    routing["hops"].append("b")
    assert message["message"]["routing_info"] == {"hops": ["a"]}


@relaxed
@given(mutated(messages()))
def test_a_damaged_message_is_accepted_or_refused_but_never_breaks_the_parser(message) -> None:
    try:
        accepted = parse_message(message)
    except ProtocolError:
        return
    assert set(accepted) == {"id", "timestamp", "message", "msg_type"}


# --- task ids -----------------------------------------------------------------------------------


@pytest.mark.parametrize("task_id", ["a", "weather-task", "x" * 256, "../..", "é ü", "🜁" * 256])
def test_any_text_without_control_characters_is_a_task_id(task_id) -> None:
    assert check_task_id(task_id) == task_id


@relaxed
@given(st.text(max_size=20), st.sampled_from([*map(chr, range(32)), "\x7f", "\x85"]), st.text())
def test_a_control_character_anywhere_makes_no_task_id(before, control, after) -> None:
    with pytest.raises(ProtocolError):
        check_task_id(before + control + after)


@pytest.mark.parametrize("task_id", ["", "x" * 257])
def test_the_length_of_a_task_id_is_limited(task_id) -> None:
    with pytest.raises(ProtocolError, match=f"1 to 256 characters, got {len(task_id)}"):
        check_task_id(task_id)


# --- between swarms -----------------------------------------------------------------------------


def test_mail_between_swarms_needs_neither_token_nor_metadata() -> None:
    assert parse_interswarm_message(interswarm_of()) == interswarm_of()
    nulls = interswarm_of(auth_token=None, metadata=None)
    assert parse_interswarm_message(nulls) == nulls


@relaxed
@given(interswarm_messages())
def test_mail_between_swarms_is_accepted_again_unchanged(message) -> None:
    once = parse_interswarm_message(copy.deepcopy(message))
    assert parse_interswarm_message(json.loads(json.dumps(once))) == once == message


def test_foreign_fields_do_not_change_which_shape_a_payload_has() -> None:
    fields = dict.fromkeys(string.ascii_letters, 1) | {"request_id": "r", "recipient": AGENT}
    payload = message_of("broadcast")["message"]
    message = interswarm_of(msg_type="broadcast", payload=payload | fields)
    assert parse_interswarm_message(message)["payload"] == payload


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"source_swarm": ""}, "source_swarm"),
        ({"target_swarm": None}, "target_swarm"),
        ({"task_owner": ""}, "task_owner"),
        ({"message_id": ""}, "message_id"),
        ({"message_id": "a\r\nb"}, "message_id"),
        ({"msg_type": "buffered"}, "msg_type"),
        ({"msg_type": "broadcast_complete"}, "payload.broadcast_id"),
        ({"task_contributors": "user:1@s"}, "task_contributors"),
        ({"metadata": []}, "metadata"),
        ({"auth_token": 5}, "auth_token"),
        ({"payload": {}}, "payload.task_id"),
        ({"payload": None}, "payload"),
        ({"payload": message_of("interrupt")["message"]}, "payload.request_id"),
    ],
)
def test_a_wrong_field_of_mail_between_swarms_is_named(changes, field) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_interswarm_message(interswarm_of(**changes))
    assert field in [problem["field"] for problem in caught.value.problems]


@relaxed
@given(mutated(interswarm_messages()))
def test_damaged_mail_between_swarms_never_breaks_the_parser(message) -> None:
    try:
        parse_interswarm_message(message)
    except ProtocolError as error:
        assert str(error)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_json_does_not_have_are_refused_or_become_null(value) -> None:
    """Whatever is handed on can be written and read again."""
    try:
        accepted = parse_message(message_of(routing_info={"a": value}))
    except ProtocolError:
        return
    assert json.loads(json.dumps(accepted, allow_nan=False)) == accepted
