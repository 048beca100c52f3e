"""From the JSON Schema of an action's arguments: a pydantic model, and strict mode."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, model_validator

from mail.core.runtime.tool_dispatch import check_action_arguments
from mail.errors import ToolError


def model_from_json_schema(
    name: str, description: str, schema: Mapping[str, Any]
) -> type[BaseModel]:
    """Return a model that takes what a call of the action may have; the schema is shown unchanged.

    Its instances have the arguments as they were given. Properties that are not required and absent
    have their default, or None.

    Args:
        name: The model's name.
        description: Its docstring.
        schema: A valid JSON Schema of an object.
    """
    shown = deepcopy(dict(schema))
    properties, required = shown.get("properties", {}), shown.get("required", ())
    defaults = {
        key: part.get("default") if isinstance(part, Mapping) else None
        for key, part in properties.items()
        if key not in required
    }

    class Arguments(BaseModel):
        model_config = ConfigDict(extra="allow")

        @model_validator(mode="before")
        @classmethod
        def _check(cls, value: Any) -> Any:
            try:
                given = dict(value)
                check_action_arguments(name, given, shown)
            except (ToolError, TypeError) as error:
                raise ValueError(str(error)) from None
            return {**deepcopy(defaults), **given}

        @classmethod
        def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
            return deepcopy(shown)

    Arguments.__name__ = Arguments.__qualname__ = name
    Arguments.__doc__ = description
    return Arguments


_ALLOWED: Final = frozenset(
    {
        "$defs",
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "definitions",
        "description",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "multipleOf",
        "pattern",
        "properties",
        "required",
        "title",
        "type",
    }
)
_SAYS_WHAT: Final = ("type", "$ref", "anyOf")
_FORMATS: Final = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"}
)


def satisfies_strict_mode(schema: Mapping[str, Any]) -> bool:
    """Tell whether a provider accepts the schema with ``strict: true``.

    Strict mode wants an object at the root, every object closed and all of its properties
    required, a type everywhere, and only a part of JSON Schema's keywords and formats. When in
    doubt the answer is no: a schema called strict that is not makes every request fail, while
    one that could have been strict only goes without the provider's help.

    Args:
        schema: A valid JSON Schema.
    """
    return schema.get("type") == "object" and _strict(schema)


def _strict(schema: object) -> bool:
    if not isinstance(schema, Mapping) or not schema.keys() <= _ALLOWED:
        return False
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    closed = schema.get("additionalProperties") is False
    required, properties = set(schema.get("required", [])), set(schema.get("properties", {}))
    return (
        any(keyword in schema for keyword in _SAYS_WHAT)
        and schema.get("$ref", "#").startswith("#")
        and schema.get("format", "uuid") in _FORMATS
        and ("object" not in kinds or (closed and required == properties))
        and ("array" not in kinds or "items" in schema)
        and all(_strict(part) for part in _parts(schema))
    )


def _parts(schema: Mapping[str, Any]) -> list[object]:
    parts: list[object] = [schema["items"]] if "items" in schema else []
    parts.extend(schema.get("anyOf", []))
    for keyword in ("properties", "$defs", "definitions"):
        parts.extend(schema.get(keyword, {}).values())
    return parts
