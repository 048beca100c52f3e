"""The shapes of requests and answers as JSON Schema: from their types, exact, always the same."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter

from mail.net import types as answers
from mail.server import bodies
from mail.server.openapi.requests import REQUESTS
from mail.server.openapi.texts import TEXTS
from mail.server.openapi.words import Shape, Words

__all__ = ["component_schemas", "reference"]

_PREFIX: Final = "#/components/schemas/"
_BODIES: Final = (bodies.HealthIn, bodies.MessageIn, bodies.SwarmIn)
_ANSWERS: Final = (
    answers.ErrorAnswer,
    answers.GetHealthResponse,
    answers.GetRootResponse,
    answers.GetStatusResponse,
    answers.GetWhoamiResponse,
    answers.GetSwarmsDumpResponse,
    answers.LoginResponse,
    answers.PostMessageResponse,
    answers.PostSwarmsLoadResponse,
    answers.StreamEvent,
    answers.TaskPage,
    answers.TokenInfo,
)
_NULL: Final = {"type": "null"}


def reference(name: str) -> dict[str, Any]:
    """Return a reference to a component."""
    return {"$ref": _PREFIX + name}


def component_schemas() -> dict[str, dict[str, Any]]:
    """Return every component by name, in the order of the alphabet."""
    inputs: list[Any] = [(body, "validation", TypeAdapter(body)) for body in _BODIES]
    outputs: list[Any] = [(shape, "serialization", TypeAdapter(shape)) for shape in _ANSWERS]
    template = _PREFIX + "{model}"
    _, made = TypeAdapter.json_schemas([*inputs, *outputs], ref_template=template)
    found = made["$defs"]
    return {name: _component(name, found[name], TEXTS[name]) for name in sorted(found)}


def _component(name: str, made: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    sent = name in REQUESTS
    required = made.get("required", ()) if sent else _always(shape)
    fields: dict[str, Any] = {}
    for field, schema in made["properties"].items():
        optional = sent and field not in required
        fields[field] = _field(schema, shape.fields[field], nullable=optional)
    component: dict[str, Any] = {
        "type": "object",
        "description": shape.text,
        "properties": fields,
    }
    if required:
        component["required"] = [field for field in fields if field in required]
    if not shape.open:
        component["additionalProperties"] = False
    return {**component, **shape.more}


def _always(shape: Shape) -> list[str]:
    return [name for name, said in shape.fields.items() if not said.sometimes]


def _field(made: Mapping[str, Any], said: Words, *, nullable: bool) -> dict[str, Any]:
    """Say what a field holds; ``nullable`` when a null counts as absent."""
    schema = _plain(made)
    if "const" in said.facets:
        schema.pop("type", None)
    schema |= said.facets
    if nullable:
        schema = _or_null(schema)
    return {"description": said.text} | dict(sorted(schema.items()))


def _plain(made: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out titles and defaults that say nothing, and write unions with null shortly."""
    schema = {name: value for name, value in made.items() if name not in ("title", "description")}
    if schema.get("default") in (None, "") or isinstance(schema["default"], dict):
        schema.pop("default", None)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), Mapping):
            schema[name] = _plain(schema[name])
    choices = [_plain(choice) for choice in schema.pop("anyOf", ())]
    if not choices:
        return schema
    real = [choice for choice in choices if choice != _NULL]
    if len(real) > 1:
        return {"anyOf": choices} | schema
    return (_or_null(real[0]) if len(real) < len(choices) else real[0]) | schema


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    if isinstance(kind, str):
        wider: dict[str, Any] = {**schema, "type": [kind, "null"]}
        if "enum" in schema:
            wider["enum"] = [*schema["enum"], None]
        return wider
    if "$ref" in schema:
        return {"anyOf": [{"$ref": schema["$ref"]}, dict(_NULL)]} | {
            name: value for name, value in schema.items() if name != "$ref"
        }
    return dict(schema)
