"""Whether a JSON Schema satisfies the providers' strict mode for tool arguments."""

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["satisfies_strict_mode"]

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
    return (
        any(keyword in schema for keyword in _SAYS_WHAT)
        and schema.get("$ref", "#").startswith("#")
        and schema.get("format", "uuid") in _FORMATS
        and ("object" not in kinds or _closed(schema))
        and ("array" not in kinds or "items" in schema)
        and all(_strict(part) for part in _parts(schema))
    )


def _closed(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    return schema.get("additionalProperties") is False and set(required) == set(properties)


def _parts(schema: Mapping[str, Any]) -> list[object]:
    parts: list[object] = [schema["items"]] if "items" in schema else []
    parts.extend(schema.get("anyOf", []))
    for keyword in ("properties", "$defs", "definitions"):
        parts.extend(schema.get(keyword, {}).values())
    return parts
