"""The table of tools, and the arguments that each of them takes and refuses."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from mail.core.tools.call import INVALID_JSON_KEY
from mail.core.tools.catalogue import CATALOGUE, check_usable, parse_arguments
from mail.errors import ToolError
from tests.support.messages import json_objects, relaxed

SEND = {"target": "tides", "subject": "s", "body": "b"}
HELP = {
    "get_summary": True,
    "get_identity": False,
    "get_tool_help": [],
    "get_full_protocol": False,
}
TELL = {"teamId": "alpha", "to": "lead", "message": "m"}
TOLD = {"team_id": "alpha", "message": "m", "priority": "normal"}
NO_WAIT = {"to": "lead", "wait_for_reply": False, "timeout_seconds": 300.0}
SENDING = ("send_request", "send_response", "send_interrupt")

ACCEPTED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *((name, SEND, SEND) for name in SENDING),
    ("send_request", SEND | {"target": "tides@harbour", "body": ""}, SEND | {
        "target": "tides@harbour", "body": ""}),
    ("send_request", SEND | {"priority": "high"}, SEND),
    ("send_broadcast", {"subject": "s", "body": "b"}, {
        "subject": "s", "body": "b", "targets": None}),
    ("send_broadcast", {"subject": "s", "body": "b", "targets": None}, {
        "subject": "s", "body": "b", "targets": None}),
    ("send_broadcast", {"subject": "s", "body": "b", "targets": ["a", "b"]}, {
        "subject": "s", "body": "b", "targets": ["a", "b"]}),
    ("send_interswarm_broadcast", {"subject": "s", "body": "b", "target_swarms": None}, {
        "subject": "s", "body": "b", "target_swarms": []}),
    ("send_interswarm_broadcast", {"subject": "s", "body": "b", "target_swarms": ["weather"]}, {
        "subject": "s", "body": "b", "target_swarms": ["weather"]}),
    ("discover_swarms", {"discovery_urls": ["https://a.example"]}, {
        "discovery_urls": ["https://a.example"]}),
    ("acknowledge_broadcast", {}, {"note": None}),
    ("acknowledge_broadcast", {"note": "n"}, {"note": "n"}),
    ("ignore_broadcast", {}, {"reason": None}),
    ("ignore_broadcast", {"reason": None}, {"reason": None}),
    ("await_message", {}, {"reason": None}),
    ("await_message", {"reason": "r", "for": "ever"}, {"reason": "r"}),
    ("help", {}, HELP),
    ("help", dict.fromkeys(HELP), HELP),
    ("help", {"get_tool_help": ["send_request"], "get_summary": False}, HELP | {
        "get_tool_help": ["send_request"], "get_summary": False}),
    ("search_memory", {"query": "q"}, {"query": "q", "limit": 5}),
    ("search_memory", {"query": "q", "limit": None}, {"query": "q", "limit": 5}),
    ("search_memory", {"query": "q", "limit": "7"}, {"query": "q", "limit": 7}),
    ("read_attachment", {"file_id": "f"}, {"file_id": "f", "offset": 0, "max_bytes": 10_000}),
    ("read_attachment", {"file_id": "f", "offset": "7", "max_bytes": 4}, {
        "file_id": "f", "offset": 7, "max_bytes": 4}),
    ("send_attachment", SEND | {"file_id": "f"}, SEND | {"file_id": "f"}),
    ("teammate_message", TELL, TOLD | NO_WAIT),
    ("teammate_message", TELL | {"priority": "urgent"}, TOLD | NO_WAIT | {"priority": "urgent"}),
    ("teammate_message", TELL | {"priority": "high"}, TOLD | NO_WAIT),
    ("teammate_broadcast", TELL | {"priority": 5}, TOLD | {"exclude_self": False}),
    ("teammate_message", TELL | {"waitForReply": True, "timeoutSeconds": 5}, TOLD | {
        "to": "lead", "wait_for_reply": True, "timeout_seconds": 5.0}),
    ("letter_receipts", {}, {"participant": None, "unanswered_for": None, "limit": 5}),
    ("teammate_broadcast", TELL, TOLD | {"exclude_self": False}),
    ("teammate_broadcast", TELL | {"excludeSelf": True, "priority": None}, TOLD | {
        "exclude_self": True}),
    ("task_complete", {"finish_message": "done"}, {"finish_message": "done"}),
    ("task_complete", {"finish_message": ""}, {"finish_message": ""}),
]  # fmt: skip

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    *((name, {}, "target: is missing; subject: is missing") for name in SENDING),
    *((name, SEND | {"target": ""}, "target: must not be empty") for name in SENDING),
    ("send_request", SEND | {"target": ["a"]}, "target: must be a string"),
    ("send_request", SEND | {"body": None}, "body: is missing"),
    ("send_response", SEND | {"subject": 5}, "subject: must be a string"),
    ("send_interrupt", SEND | {"body": {"a": 1}}, "body: must be a string"),
    ("send_broadcast", {"subject": "s"}, "body: is missing"),
    ("send_broadcast", {"subject": "s", "body": "b", "targets": "a"}, "targets: must be a list"),
    (
        "send_broadcast",
        {"subject": "s", "body": "b", "targets": [1]},
        "targets.0: must be",
    ),
    ("send_interswarm_broadcast", {"subject": "s"}, "body: is missing"),
    (
        "send_interswarm_broadcast",
        {"subject": "s", "body": "b", "target_swarms": "weather"},
        "target_swarms: must be a list",
    ),
    ("discover_swarms", {}, "discovery_urls: is missing"),
    ("discover_swarms", {"discovery_urls": []}, "discovery_urls: must not be empty"),
    (
        "discover_swarms",
        {"discovery_urls": ["https://a.example"] * 17},
        "discovery_urls: must have at most 16 entries",
    ),
    ("acknowledge_broadcast", {"note": 5}, "note: must be a string"),
    ("ignore_broadcast", {"reason": []}, "reason: must be a string"),
    ("await_message", {"reason": {}}, "reason: must be a string"),
    ("help", {"get_summary": "perhaps"}, "get_summary: must be true or false"),
    ("help", {"get_tool_help": ["dance"]}, r"get_tool_help.0: must be 'send_request'"),
    ("help", {"get_tool_help": "help"}, "get_tool_help: must be a list"),
    ("search_memory", {}, "query: is missing"),
    ("search_memory", {"query": "q", "limit": 0}, "limit: must be at least"),
    ("search_memory", {"query": "q", "limit": 51}, "limit: must be at most"),
    ("search_memory", {"query": "q", "limit": "many"}, "limit: must be an integer"),
    ("read_attachment", {}, "file_id: is missing"),
    ("read_attachment", {"file_id": "f", "offset": -1}, "offset: must be at least"),
    ("read_attachment", {"file_id": "f", "max_bytes": 50_001}, "max_bytes: must be at most"),
    ("read_attachment", {"file_id": "f", "max_bytes": 0}, "max_bytes: must be at least"),
    ("send_attachment", SEND, "file_id: is missing"),
    ("send_attachment", SEND | {"file_id": ""}, "file_id: must not be empty"),
    ("teammate_message", {}, "teamId: is missing; to: is missing; message: is missing"),
    ("teammate_message", TELL | {"timeoutSeconds": -1}, "timeoutSeconds: must be at least"),
    ("teammate_message", TELL | {"timeoutSeconds": float("inf")}, "timeoutSeconds: must be"),
    ("letter_receipts", {"limit": 51}, "limit: must be at most 50"),
    ("letter_receipts", {"unanswered_for": -1}, "unanswered_for: must be at least"),
    ("teammate_broadcast", {"message": ""}, "teamId: is missing; message: must not be empty"),
    ("teammate_broadcast", TELL | {"excludeSelf": "x"}, "excludeSelf: must be true or false"),
    ("task_complete", {}, "finish_message: is missing"),
    ("task_complete", {"finish_message": ["a"]}, "finish_message: must be a string"),
]


def parse(name: str, arguments: dict[str, Any]) -> BaseModel:
    check_usable(name, arguments)  # as for every call, before its tool is looked for
    return parse_arguments(name, arguments, CATALOGUE[name].model)


@pytest.mark.parametrize(("name", "arguments", "read"), ACCEPTED)
def test_arguments_that_fit_are_read_leniently(name, arguments, read) -> None:
    assert parse(name, arguments).model_dump() == read


@pytest.mark.parametrize(("name", "arguments", "problem"), REFUSED)
def test_arguments_that_do_not_fit_are_refused_by_name(name, arguments, problem) -> None:
    with pytest.raises(ToolError, match=f"invalid arguments for '{name}': .*{problem}"):
        parse(name, arguments)


def test_both_lists_cover_every_tool() -> None:
    assert {name for name, *_ in ACCEPTED} == {name for name, *_ in REFUSED} == set(CATALOGUE)


@pytest.mark.parametrize("name", CATALOGUE)
def test_arguments_that_were_no_json_are_shown_to_the_agent(name) -> None:
    with pytest.raises(ToolError, match=f"of '{name}' are not valid JSON: {{\"target\": "):
        parse(name, {INVALID_JSON_KEY: '{"target": ' + "x" * 5000})


@relaxed
@given(st.sampled_from(sorted(CATALOGUE)), json_objects)
def test_any_json_object_is_read_or_refused_with_a_short_text(name, arguments) -> None:
    try:
        parse(name, arguments)
    except ToolError as error:
        assert name in str(error) and len(str(error)) < 2000


def test_reading_leaves_the_call_as_it_was() -> None:
    arguments = {"note": None, "other": 1}
    parse("acknowledge_broadcast", arguments)
    assert arguments == {"note": None, "other": 1}


# --- the table ----------------------------------------------------------------------------------
