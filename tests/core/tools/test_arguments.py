"""Arguments of action calls against the action's own schema."""

import copy
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mail.core.runtime.tool_dispatch import check_action_arguments
from mail.core.tools.call import INVALID_JSON_KEY
from mail.errors import ToolError
from tests.support.messages import json_objects, json_values, texts

TIDE = {
    "type": "object",
    "properties": {
        "harbour": {"type": "string"},
        "day": {"type": "integer"},
        "unit": {"type": ["string", "null"]},
        "place": {"$ref": "#/$defs/Place"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["harbour"],
    "$defs": {
        "Place": {
            "type": "object",
            "properties": {"lat": {"type": "number"}},
            "required": ["lat"],
        }
    },
}


def checked(arguments, schema=TIDE):
    arguments, before = copy.deepcopy(arguments), copy.deepcopy(schema)
    check_action_arguments("tide", arguments, schema)
    assert schema == before
    return arguments


def problem_with(arguments, schema=TIDE) -> str:
    with pytest.raises(ToolError) as caught:
        check_action_arguments("tide", arguments, schema)
    return str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"harbour": "Oban"},
        {"harbour": "Oban", "day": 3, "unit": "m", "place": {"lat": 1.5}, "tags": ["a"]},
        {"harbour": "Oban", "unknown": [1]},
        {"harbour": "", "tags": []},
    ],
)
def test_what_fits_is_left_as_it_is(arguments) -> None:
    assert checked(arguments) == arguments


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "arguments: 'harbour' is a required property"),
        ({"harbour": 5}, "harbour: 5 is not of type 'string'"),
        ({"harbour": None}, "harbour: None is not of type 'string'"),
        ({"harbour": "Oban", "day": "3"}, "day: '3' is not of type 'integer'"),
        ({"harbour": "Oban", "place": {}}, "place: 'lat' is a required property"),
        ({"harbour": "Oban", "tags": ["a", 5]}, "tags.1: 5 is not of type 'string'"),
    ],
)
def test_what_does_not_fit_is_named(arguments, problem) -> None:
    assert problem_with(arguments) == f"invalid arguments for 'tide': {problem}"


def test_several_problems_are_named_at_once() -> None:
    text = problem_with({"harbour": 1, "day": "x"})
    assert "harbour: " in text and "day: " in text


def test_a_long_value_does_not_make_a_long_error() -> None:
    assert len(problem_with({"harbour": ["x" * 100_000]})) < 500


# --- nulls --------------------------------------------------------------------------------------


def test_null_for_something_optional_counts_as_left_out() -> None:
    given_nulls = {"harbour": "Oban", "day": None, "place": None, "tags": None}
    assert checked(given_nulls) == {"harbour": "Oban"}


def test_null_stays_where_the_schema_takes_it_or_says_nothing_of_it() -> None:
    arguments = {"harbour": "Oban", "unit": None, "unknown": None}
    assert checked(arguments) == arguments


def test_null_is_refused_where_unknown_arguments_are() -> None:
    assert "unknown" in problem_with(
        {"harbour": "Oban", "unknown": None}, TIDE | {"additionalProperties": False}
    )


@given(st.sets(st.sampled_from(["day", "place", "tags", "unit"])))
def test_every_optional_property_may_be_null(names) -> None:
    checked({"harbour": "Oban"} | dict.fromkeys(names))


# --- odd calls and odd schemas ------------------------------------------------------------------


@pytest.mark.parametrize("schema", [TIDE, {}])
def test_arguments_that_were_no_json_are_refused_whatever_the_schema(schema) -> None:
    text = problem_with({INVALID_JSON_KEY: '{"harbour": "Ob' + "x" * 1000}, schema)
    assert text.startswith("the arguments of 'tide' are not valid JSON: {\"harbour\"")
    assert len(text) < 300


@given(json_objects)
def test_an_action_without_a_schema_takes_anything(arguments) -> None:
    assert checked(arguments, {}) == arguments


@given(st.dictionaries(st.sampled_from(list(TIDE["properties"])) | texts, json_values))
def test_any_arguments_are_taken_or_refused_with_words(arguments) -> None:
    try:
        taken = checked(arguments)
    except ToolError as error:
        assert str(error).startswith("invalid arguments for 'tide': ")
        return
    assert all(taken[name] == arguments[name] for name in taken)
    assert isinstance(taken["harbour"], str)


@pytest.mark.parametrize(
    "reference", ["#/$defs/missing", "other.json", "http://127.0.0.1:9/schema.json"]
)
def test_a_reference_that_leads_nowhere_is_told_and_never_fetched(monkeypatch, reference) -> None:
    def refuse(*arguments, **options):
        raise AssertionError("a schema must not make us open a connection")

    monkeypatch.setattr(socket, "create_connection", refuse)
    schema = {"type": "object", "properties": {"harbour": {"$ref": reference}}}
    text = problem_with({"harbour": "Oban"}, schema)
    assert text.startswith("'tide' cannot be called: its schema refers to ")
    assert reference.removeprefix("#") in text


def test_a_schema_may_say_which_draft_it_follows() -> None:
    old = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"}
    old["properties"] = {"day": {"type": "integer", "minimum": 3, "exclusiveMinimum": True}}
    assert checked({"day": 4}, old) == {"day": 4}
    assert problem_with({"day": 3}, old).startswith("invalid arguments for 'tide': day: 3 ")


def test_of_thousands_of_wrong_values_a_few_are_looked_at() -> None:
    told: list[object] = []

    class Odd:
        def __repr__(self) -> str:
            told.append(self)
            return "odd"

    with pytest.raises(ToolError) as caught:
        check_action_arguments("tide", {"harbour": "x", "tags": [Odd()] * 1000}, TIDE)
    assert str(caught.value).count("is not of type") == len(told) == 3
