"""From pydantic models to tool specifications in both formats that models are offered."""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel
from pydantic_core import from_json, to_json

ToolStyle = Literal["completions", "responses"]

_TABLES: Final = ("properties", "$defs")
_LISTS: Final = ("anyOf", "allOf", "oneOf")
_SAYS_WHAT: Final = frozenset({"type", "$ref", "enum", "const", *_LISTS})


def pydantic_model_to_tool(
    model_cls: type[BaseModel],
    name: str | None = None,
    description: str | None = None,
    style: ToolStyle = "completions",
) -> dict[str, Any]:
    """Return the tool specification of a model's fields, in strict mode.

    Strict mode lists every property as required; a property with a default of None accepts null.
    A model that strict mode cannot express, because it has a field of free-form keys or of any
    type, gets its plain schema and ``strict`` false.

    Args:
        model_cls: The model of the tool's arguments.
        name: The tool's name; the model's by default.
        description: The tool's description; the model's docstring by default.
        style: The chat-completions or the Responses layout.
    """
    title = name or model_cls.__name__
    text = description if description is not None else inspect.cleandoc(model_cls.__doc__ or "")
    plain = model_cls.model_json_schema()
    strict = _expressible(plain)
    parameters = _closed(plain, plain.get("$defs", {})) if strict else plain
    parameters["title"] = title
    parameters.pop("description", None)
    return tool_spec(title, text, parameters, style, strict=strict)


def pydantic_function_tool(
    model: type[BaseModel], *, name: str | None = None, description: str | None = None
) -> dict[str, Any]:
    """Return a model's tool specification in the chat-completions layout.

    It takes what OpenAI's helper of this name takes; see `pydantic_model_to_tool`.
    """
    return pydantic_model_to_tool(model, name, description, "completions")


def _make_tools(
    tools: Iterable[Mapping[str, Any] | type[BaseModel]], style: ToolStyle = "responses"
) -> list[dict[str, Any]]:
    """Return tools as specifications in one layout, whichever they came in.

    Args:
        tools: Specifications in either layout, tools of the provider's own (kept as they are), and
            pydantic models.
        style: The layout to return.
    """
    lay_out = flat_tool if style == "responses" else nested_tool
    return [
        lay_out(pydantic_model_to_tool(tool) if isinstance(tool, type) else tool) for tool in tools
    ]


def nested_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a function tool in the layout of chat completions; other tools are only copied."""
    spec: dict[str, Any] = from_json(to_json(dict(tool)))
    if spec.get("type") != "function" or "function" in spec:
        return spec
    spec.pop("type")
    return {"type": "function", "function": spec}


def flat_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a function tool in the layout of the Responses API; other tools are only copied.

    ``strict`` is always said there, because that API takes its absence for true.
    """
    spec: dict[str, Any] = from_json(to_json(dict(tool)))
    if spec.get("type") != "function":
        return spec
    body = spec.pop("function", {})
    return {**spec, **body, "strict": bool({**spec, **body}.get("strict"))}


def tool_spec(
    name: str, description: str, parameters: dict[str, Any], style: ToolStyle, *, strict: bool
) -> dict[str, Any]:
    """Lay a tool out in one of the two formats."""
    body = {"name": name, "description": description, "parameters": parameters, "strict": strict}
    if style == "responses":
        return {"type": "function", **body}
    return {"type": "function", "function": body}


def get_tool_spec_name(tool: Mapping[str, Any]) -> str | None:
    """Return the name in a tool specification of either format, or None."""
    nested = tool.get("function")
    name = tool.get("name") or (nested.get("name") if isinstance(nested, Mapping) else None)
    return name if isinstance(name, str) else None


def _parts(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the schemas directly inside a schema."""
    for key in _TABLES:
        yield from schema.get(key, {}).values()
    for key in _LISTS:
        yield from schema.get(key, ())
    if "items" in schema:
        yield schema["items"]


def _expressible(schema: Any) -> bool:
    """Tell whether strict mode can express a schema: no free-form object, no untyped value."""
    if not isinstance(schema, Mapping) or not schema.keys() & _SAYS_WHAT:
        return False
    if schema.get("type") == "object" and "properties" not in schema:
        return False
    if schema.get("additionalProperties") or "prefixItems" in schema:
        return False
    return all(_expressible(part) for part in _parts(schema))


def _closed(schema: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Close every object and require all of its properties.

    A reference must stand alone in strict mode; one with words beside it is written out, except
    inside itself.
    """
    if "$ref" in schema and len(schema) > 1:
        name = schema["$ref"].removeprefix("#/$defs/")
        if name not in shared:
            return {"$ref": schema["$ref"]}
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**shared[name], **beside}
        shared = {other: shape for other, shape in shared.items() if other != name}
    closed: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _TABLES:
            closed[key] = {name: _closed(shape, shared) for name, shape in value.items()}
        elif key in _LISTS:
            closed[key] = [_closed(part, shared) for part in value]
        elif key == "items":
            closed[key] = _closed(value, shared)
        elif not (key == "default" and value is None):
            closed[key] = value
    if "properties" in closed:
        closed["required"] = list(closed["properties"])
        closed["additionalProperties"] = False
    return closed
