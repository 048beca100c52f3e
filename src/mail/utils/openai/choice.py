"""``tools`` and ``tool_choice``: which functions are offered, and what is forced."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mail.utils.openai.problems import ResponsesError

__all__ = ["offered_tools"]

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MODES: Final = ("none", "auto", "required")


def offered_tools(
    tools: Sequence[Mapping[str, Any]], choice: str | Mapping[str, Any]
) -> tuple[list[dict[str, Any]], str | None]:
    """Return the declarations to offer, and what the agent is forced to (see `Offer.force`).

    Raises:
        ResponsesError: a tool that is no function, or a choice that names none of them.
    """
    declared = [_declared(tool, index) for index, tool in enumerate(tools)]
    if isinstance(choice, str):
        return _by_mode(declared, choice)
    kind = choice.get("type")
    if kind == "function":
        name = _known(choice.get("name"), declared, "tool_choice.name")
        return declared, name
    if kind == "allowed_tools":
        return _by_mode(_allowed(choice, declared), choice.get("mode", "auto"))
    raise ResponsesError(f"tool_choice of type {kind!r} is not supported.", "tool_choice.type")


def _by_mode(tools: list[dict[str, Any]], mode: object) -> tuple[list[dict[str, Any]], str | None]:
    if mode not in _MODES:
        raise ResponsesError(
            f"Invalid value for 'tool_choice': {mode!r}; one of {', '.join(_MODES)}.",
            "tool_choice",
            "invalid_value",
        )
    if mode == "none":
        return [], None
    if mode == "required" and not tools:
        raise ResponsesError("tool_choice 'required' needs 'tools'.", "tool_choice")
    return tools, "required" if mode == "required" else None


def _allowed(choice: Mapping[str, Any], declared: list[dict[str, Any]]) -> list[dict[str, Any]]:
    listed = choice.get("tools")
    if not isinstance(listed, list) or not all(isinstance(item, Mapping) for item in listed):
        raise ResponsesError("'tool_choice.tools' must be a list of tools.", "tool_choice.tools")
    names = {_known(item.get("name"), declared, "tool_choice.tools") for item in listed}
    return [tool for tool in declared if tool["name"] in names]


def _known(name: object, declared: Sequence[Mapping[str, Any]], param: str) -> str:
    if isinstance(name, str) and name in {tool["name"] for tool in declared}:
        return name
    raise ResponsesError(f"Tool choice {name!r} not found in 'tools' parameter.", param)


def _declared(tool: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return one function as the engine takes it; the layout of chat completions is taken, too."""
    where = f"tools[{index}]"
    if tool.get("type") != "function":
        raise ResponsesError(
            f"Tools of type {tool.get('type')!r} are not supported; only functions of the caller.",
            f"{where}.type",
            "invalid_value",
        )
    nested = tool.get("function")
    body = {**tool, **nested} if isinstance(nested, Mapping) else dict(tool)
    name, parameters = body.get("name"), body.get("parameters")
    parameters = {} if parameters is None else parameters
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ResponsesError(
            f"Invalid '{where}.name': 1 to 64 of a-z, A-Z, 0-9, _ and -.", f"{where}.name"
        )
    if not isinstance(parameters, Mapping):
        raise ResponsesError(
            f"Invalid type for '{where}.parameters': expected an object.", f"{where}.parameters"
        )
    schema = {"type": "object", "properties": {}, **parameters}
    return {
        "type": "function",
        "name": name,
        "description": str(body.get("description") or ""),
        "parameters": schema,
        "strict": bool(body.get("strict")),
    }
