"""From a JSON Schema to a pydantic model that validates the same and shows the schema unchanged."""

import functools
import operator
from collections.abc import Mapping, Sequence
from copy import deepcopy
from types import GenericAlias
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

_Schema = Mapping[str, Any]

_PLAIN: Final[Mapping[str, Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": type(None),
}
_LIMITS: Final[Mapping[str, str]] = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "pattern": "pattern",
    "minItems": "min_length",
    "maxItems": "max_length",
}
_LIMITED: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"minLength", "maxLength", "pattern"}),
    "integer": frozenset(
        {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    ),
    "number": frozenset(
        {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    ),
    "array": frozenset({"minItems", "maxItems"}),
}


def model_from_json_schema(name: str, description: str, schema: _Schema) -> type[BaseModel]:
    """Build a model whose fields follow the schema's properties.

    Its ``model_json_schema()`` is the given schema itself. Properties that are not required and
    have no default may be left out and are None then. Property names that are no field names get
    one (``field_0``, …) with the property as alias, so use ``by_alias=True`` when dumping.

    Raises:
        ValueError: a ``type`` that JSON Schema does not know.
    """
    model = _Builder(schema).model(name, schema, ())
    shown = dict(schema)

    class Shown(model):  # type: ignore[valid-type,misc]  # the base is made at run time
        @classmethod
        def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
            return deepcopy(shown)

    Shown.__name__ = Shown.__qualname__ = name
    Shown.__doc__ = description
    return Shown


class _Builder:
    """Builds the types of one root schema; ``seen`` is the trail of references being followed."""

    def __init__(self, root: _Schema) -> None:
        self._root = root

    def model(self, name: str, schema: _Schema, seen: tuple[str, ...]) -> type[BaseModel]:
        required = schema.get("required", ())
        properties = schema.get("properties", {})
        fields: dict[str, Any] = {}
        for position, (key, part) in enumerate(properties.items()):
            kind = self.type_of(f"{name}_{key}", part, seen)
            default: Any = ...
            if key not in required:
                default = _told(part, "default")
                kind = _union([kind, type(None)]) if default is None else kind
            alias = key if _awkward(key) else None
            fields[_field_name(position, properties) if alias else key] = (
                kind,
                Field(default, alias=alias, description=_told(part, "description")),
            )
        return create_model(
            name,
            __config__=ConfigDict(
                extra=_extra(schema), populate_by_name=True, regex_engine="python-re"
            ),
            **fields,
        )

    def type_of(self, name: str, schema: Any, seen: tuple[str, ...]) -> Any:
        if not isinstance(schema, Mapping):
            return Any
        if "$ref" in schema:
            return self._referred(name, schema["$ref"], seen)
        if "const" in schema or "enum" in schema:
            return _one_of(schema["enum"] if "enum" in schema else [schema["const"]])
        if "type" not in schema:
            return self._combined(name, schema, seen)
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return _union([self._typed(name, kind, schema, seen) for kind in kinds])

    def _typed(self, name: str, kind: Any, schema: _Schema, seen: tuple[str, ...]) -> Any:
        if kind == "object":
            return self._object(name, schema, seen)
        if kind == "array":
            items = self.type_of(f"{name}_item", schema.get("items"), seen)
            return _limited(kind, GenericAlias(list, (items,)), schema)
        if not isinstance(kind, str) or kind not in _PLAIN:
            raise ValueError(f"unsupported JSON schema type: {kind}")
        return _limited(kind, _PLAIN[kind], schema)

    def _object(self, name: str, schema: _Schema, seen: tuple[str, ...]) -> Any:
        if schema.get("properties"):
            return self.model(name, schema, seen)
        values = self.type_of(f"{name}_value", schema.get("additionalProperties"), seen)
        return GenericAlias(dict, (str, values))

    def _combined(self, name: str, schema: _Schema, seen: tuple[str, ...]) -> Any:
        options = schema.get("anyOf") or schema.get("oneOf")
        if options:
            return _union(
                [self.type_of(f"{name}_{n}", part, seen) for n, part in enumerate(options)]
            )
        parts = schema.get("allOf", [])
        return self.type_of(name, parts[0], seen) if len(parts) == 1 else Any

    def _referred(self, name: str, reference: str, seen: tuple[str, ...]) -> Any:
        # A type cannot contain itself here; the JSON Schema, which is shown unchanged, still can.
        if reference in seen or not reference.startswith("#/"):
            return Any
        found: Any = self._root
        for step in reference[2:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, Mapping) else None
        return self.type_of(name, found, (*seen, reference))


def _limited(kind: str, plain: Any, schema: _Schema) -> Any:
    limits = {
        _LIMITS[keyword]: value
        for keyword, value in schema.items()
        if keyword in _LIMITED.get(kind, ())
    }
    return Annotated[plain, Field(**limits)] if limits else plain


def _one_of(values: Sequence[Any]) -> Any:
    if all(value is None or isinstance(value, str | int | bool) for value in values) and values:
        return Literal[tuple(values)]
    return Any


def _union(options: Sequence[Any]) -> Any:
    if not options or Any in options:
        return Any
    if len(options) == 1:
        return options[0]
    return functools.reduce(operator.or_, options)


def _told(schema: Any, keyword: str) -> Any:
    return schema.get(keyword) if isinstance(schema, Mapping) else None


def _field_name(position: int, properties: _Schema) -> str:
    name = f"field_{position}"
    while name in properties:
        name += "_"
    return name


def _awkward(key: str) -> bool:
    return not key.isidentifier() or key.startswith("_") or hasattr(BaseModel, key)


def _extra(schema: _Schema) -> Literal["allow", "forbid"]:
    return "forbid" if schema.get("additionalProperties") is False else "allow"


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
