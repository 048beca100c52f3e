"""From pydantic models to tool specifications in both formats that models are offered."""

from typing import Any, Literal

from pydantic import BaseModel

__all__ = ["ToolStyle", "get_tool_spec_name", "pydantic_model_to_tool", "tool_spec"]

ToolStyle = Literal["completions", "responses"]


def pydantic_model_to_tool(
    model_cls: type[BaseModel],
    name: str | None = None,
    description: str | None = None,
    style: ToolStyle = "completions",
) -> dict[str, Any]:
    """Return the tool specification of a model's fields, in strict mode.

    Strict mode lists every property as required; a property with a default of None accepts null.

    Args:
        model_cls: The model of the tool's arguments.
        name: The tool's name; the model's by default.
        description: What the tool does; the model's docstring by default.
        style: The chat-completions or the Responses layout.
    """
    title = name or model_cls.__name__
    parameters = _strict(model_cls.model_json_schema())
    parameters["title"] = title
    text = description if description is not None else (model_cls.__doc__ or "").strip()
    parameters.pop("description", None)
    return tool_spec(title, text, parameters, style, strict=True)


def tool_spec(
    name: str, description: str, parameters: dict[str, Any], style: ToolStyle, *, strict: bool
) -> dict[str, Any]:
    """Lay a tool out in one of the two formats."""
    body = {"name": name, "description": description, "parameters": parameters, "strict": strict}
    if style == "responses":
        return {"type": "function", **body}
    return {"type": "function", "function": body}


def get_tool_spec_name(tool: dict[str, Any]) -> str | None:
    """Return the name in a tool specification of either format, or None."""
    name = tool.get("name") or (tool.get("function") or {}).get("name")
    return name if isinstance(name, str) else None


def _strict(schema: Any) -> Any:
    """Close every object and require all of its properties."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {
        key: {name: _strict(shape) for name, shape in value.items()}
        if key in ("properties", "$defs")
        else _strict(value)
        for key, value in schema.items()
        if not (key == "default" and value is None)
    }
    if "properties" in closed:
        closed["required"] = list(closed["properties"])
        closed["additionalProperties"] = False
    return closed
