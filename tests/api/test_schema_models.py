"""Models from JSON Schemas."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ValidationError

from mail import MAILAction


def _model(properties: dict[str, Any], **more: Any) -> type[BaseModel]:
    schema = {"type": "object", "properties": properties, **more}
    made = MAILAction("make", "Make it.", schema, lambda args: "")
    model = made.to_pydantic_model(for_tools=True)
    assert model.model_json_schema() == schema
    return model


def _accepts(model: type[BaseModel], value: dict[str, Any]) -> bool:
    try:
        model.model_validate(value)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    ("shape", "good", "bad"),
    [
        ({"type": "string"}, "x", 1),
        ({"type": "integer"}, 1, "x"),
        ({"type": "integer", "minimum": 1, "maximum": 3}, 3, 4),
        ({"type": "number", "exclusiveMinimum": 0}, 0.5, 0),
        ({"type": "boolean"}, True, "maybe"),
        ({"type": "null"}, None, 1),
        ({"type": ["string", "null"]}, None, 1),
        ({"type": "string", "pattern": "^(?!no)"}, "yes", "no"),
        ({"type": "string", "maxLength": 2}, "ab", "abc"),
        ({"type": "array"}, [1, "a"], "a"),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 2}, [1], [1, 2, 3]),
        ({"type": "object"}, {"a": 1}, 1),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": "x"}),
        (
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"a": 1},
            {},
        ),
        ({"enum": ["a", "b"]}, "a", "c"),
        ({"type": "string", "enum": ["a"]}, "a", "b"),
        ({"const": 5}, 5, 6),
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, True, "x"),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, None, "x"),
        ({"allOf": [{"type": "integer"}]}, 1, "x"),
        ({"$ref": "#/$defs/unit"}, "km", "mile"),
    ],
)
def test_each_kind_of_schema_is_validated(shape: dict[str, Any], good: Any, bad: Any) -> None:
    model = _model({"value": shape}, required=["value"], **{"$defs": {"unit": {"enum": ["km"]}}})
    assert _accepts(model, {"value": good})
    assert not _accepts(model, {"value": bad})
    assert not _accepts(model, {})


@pytest.mark.parametrize("shape", [{}, True, {"not": {"type": "string"}}])
def test_a_schema_may_leave_the_type_open(shape: Any) -> None:
    assert _accepts(_model({"value": shape}), {"value": 1})


def test_what_a_schema_refers_to_is_not_fetched() -> None:
    assert not _accepts(_model({"value": {"$ref": "http://x"}}), {"value": 1})


def test_a_schema_may_contain_itself() -> None:
    tree = {"type": "object", "properties": {"child": {"$ref": "#/$defs/tree"}}}
    model = _model({"root": {"$ref": "#/$defs/tree"}}, **{"$defs": {"tree": tree}})
    assert _accepts(model, {"root": {"child": {"child": {}}}})


def test_optional_properties_are_none_or_their_default() -> None:
    model = _model({"a": {"type": "integer"}, "b": {"type": "integer", "default": 3}})
    assert model.model_validate({}).model_dump() == {"a": None, "b": 3}


@pytest.mark.parametrize("name", ["_odd", "model_config", "with space", "1st", "copy", "a-b"])
def test_property_names_that_are_no_field_names_work(name: str) -> None:
    model = _model({name: {"type": "integer"}}, required=[name])
    assert model.model_validate({name: 1}).model_dump() == {name: 1}
    assert not _accepts(model, {name: "x"})


def test_a_closed_schema_refuses_more() -> None:
    assert not _accepts(_model({}, additionalProperties=False), {"a": 1})
    assert _accepts(_model({}), {"a": 1})


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not a JSON Schema: properties\.a\.type"):
        _model({"a": {"type": "thing"}})


def test_the_model_is_named_after_the_action_for_tools() -> None:
    assert _model({}).__name__ == "make"
    assert _model({}).__doc__ == "Make it."


_plain = st.sampled_from(["string", "integer", "boolean", "null"])
_shapes = st.recursive(
    st.one_of(
        _plain.map(lambda kind: {"type": kind}),
        st.lists(_plain, min_size=1, max_size=3, unique=True).map(lambda kinds: {"type": kinds}),
    ),
    lambda inner: st.one_of(
        inner.map(lambda shape: {"type": "array", "items": shape}),
        st.lists(inner, min_size=1, max_size=3).map(lambda shapes: {"anyOf": shapes}),
    ),
    max_leaves=4,
)
_values = st.recursive(
    st.one_of(st.text(max_size=3), st.integers(2, 99), st.none()),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@given(_shapes, _values)
@settings(max_examples=150, deadline=None)
def test_whatever_the_schema_accepts_the_model_accepts(shape: dict[str, Any], value: Any) -> None:
    if Draft202012Validator(shape).is_valid(value):
        assert _accepts(_model({"value": shape}, required=["value"]), {"value": value})
