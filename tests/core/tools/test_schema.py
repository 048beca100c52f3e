"""From pydantic models to strict tool specifications."""

from typing import Any, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field

from mail.core.tools.schema import get_tool_spec_name, pydantic_model_to_tool


class Place(BaseModel):
    """Somewhere."""

    town: str
    country: str | None = None


class Journey(BaseModel):
    """Plans a journey.

    With stops.
    """

    start: Place = Field(description="Where it begins.")
    stops: list[Place] = Field(default_factory=list, max_length=3)
    fast: bool = True
    how: Literal["ship", "train"] | None = None


class Node(BaseModel):
    name: str
    parent: "Node | None" = None
    child: "Node" = Field(description="The next one.")


class Free(BaseModel):
    labels: dict[str, str]
    note: str | None = None


class Anything(BaseModel):
    value: Any = None


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


class Nothing(BaseModel):
    pass


def parameters_of(model: type[BaseModel]) -> dict[str, Any]:
    return pydantic_model_to_tool(model, style="responses")["parameters"]


def schemas_in(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return [found for part in schema for found in schemas_in(part)]
    if not isinstance(schema, dict):
        return []
    return [schema] + [found for part in schema.values() for found in schemas_in(part)]


def test_the_two_styles_hold_the_same_specification() -> None:
    nested = pydantic_model_to_tool(Journey, "travel", "Go.", style="completions")
    flat = pydantic_model_to_tool(Journey, "travel", "Go.", style="responses")
    assert nested == {"type": "function", "function": nested["function"]}
    assert flat == {"type": "function"} | nested["function"]
    assert (flat["name"], flat["description"], flat["strict"]) == ("travel", "Go.", True)
    assert flat["parameters"]["title"] == "travel"


def test_name_and_description_are_the_models_by_default() -> None:
    tool = pydantic_model_to_tool(Journey)["function"]
    assert tool["name"] == "Journey"
    assert tool["description"] == "Plans a journey.\n\nWith stops."


@pytest.mark.parametrize("model", [Journey, Node, Nothing, Place])
def test_every_object_is_closed_and_requires_all_it_has(model) -> None:
    parameters = parameters_of(model)
    Draft202012Validator.check_schema(parameters)
    assert parameters["type"] == "object"
    for schema in schemas_in(parameters):
        if schema.get("type") == "object":
            assert schema["additionalProperties"] is False
            assert schema["required"] == list(schema["properties"])


@pytest.mark.parametrize("model", [Journey, Node])
def test_a_reference_stands_alone(model) -> None:
    for schema in schemas_in(parameters_of(model)):
        assert "$ref" not in schema or set(schema) == {"$ref"}


def test_words_beside_a_reference_are_kept() -> None:
    start = parameters_of(Journey)["properties"]["start"]
    assert start["description"] == "Where it begins."
    assert list(start["properties"]) == ["town", "country"]


def test_an_optional_field_may_be_null_and_has_no_default() -> None:
    properties = parameters_of(Journey)["properties"]
    assert {"type": "null"} in properties["how"]["anyOf"]
    assert "default" not in properties["how"]
    assert properties["fast"]["default"] is True


def test_what_the_model_accepts_fits_the_schema() -> None:
    journey = Journey(start=Place(town="Brest"), stops=[Place(town="Cork", country="IE")])
    Draft202012Validator(parameters_of(Journey)).validate(journey.model_dump())


@pytest.mark.parametrize("model", [Free, Anything, Open])
def test_a_model_that_strict_mode_cannot_express_is_not_called_strict(model) -> None:
    tool = pydantic_model_to_tool(model, style="responses")
    assert tool["strict"] is False
    assert tool["parameters"].get("required") == model.model_json_schema().get("required")


def test_a_default_that_looks_like_a_schema_is_left_alone() -> None:
    class Odd(BaseModel):
        pick: Literal["properties", "default"] = "default"
        default: str | None = None

    properties = parameters_of(Odd)["properties"]
    assert list(properties) == ["pick", "default"]
    assert properties["pick"]["enum"] == ["properties", "default"]


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ({"name": "a"}, "a"),
        ({"type": "function", "function": {"name": "b"}}, "b"),
        ({"name": "a", "function": {"name": "b"}}, "a"),
        ({"type": "web_search"}, None),
        ({"function": None}, None),
        ({"function": "x"}, None),
        ({"name": 5}, None),
        ({}, None),
    ],
)
def test_the_name_is_found_in_either_style(tool, name) -> None:
    assert get_tool_spec_name(tool) == name
