"""``tools`` and ``tool_choice``: which functions are offered, and what is forced."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mail.responses_api.problems import ResponsesError

__all__ = ["Choice", "read_choice"]

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MODES: Final = ("none", "auto", "required")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a request makes of its functions.

    Attributes:
        tools: All of them, as the response repeats them.
        offered: The declarations to offer, as the engine takes them.
        force: What the agent is forced to; see `mail.core.tools.offer.Offer.force`.
        shown: The choice as the response repeats it.
    """

    tools: list[dict[str, Any]]
    offered: tuple[dict[str, Any], ...]
    force: str | None
    shown: str | dict[str, Any]


def read_choice(tools: Sequence[Mapping[str, Any]], choice: str | Mapping[str, Any]) -> Choice:
    """Read ``tools`` and ``tool_choice``; the layouts of chat completions are taken, too.

    Raises:
        ResponsesError: a tool that is no function, or a choice that names none of them.
    """
    shown = [_shown(tool, index) for index, tool in enumerate(tools)]
    declared = [_declared(tool) for tool in shown]
    offered, force, repeated = _chosen(declared, choice)
    return Choice(tools=shown, offered=tuple(offered), force=force, shown=repeated)


def _chosen(
    declared: list[dict[str, Any]], choice: str | Mapping[str, Any]
) -> tuple[list[dict[str, Any]], str | None, str | dict[str, Any]]:
    if isinstance(choice, str):
        return *_by_mode(declared, choice), choice
    kind = choice.get("type")
    if kind == "function":
        name = _known(_name_of(choice), declared, "tool_choice.name")
        return declared, name, {"type": "function", "name": name}
    if kind == "allowed_tools":
        mode = choice.get("mode", "auto")
        if mode == "none":  # is said without a list
            raise ResponsesError("Invalid value for 'tool_choice.mode'.", "tool_choice.mode")
        allowed = _allowed(choice, declared)
        listed = [{"type": "function", "name": tool["name"]} for tool in allowed]
        repeated = {"type": "allowed_tools", "mode": mode, "tools": listed}
        return *_by_mode(allowed, mode), repeated
    raise ResponsesError(f"tool_choice of type {kind!r} is not supported.", "tool_choice.type")


def _name_of(choice: Mapping[str, Any]) -> object:
    nested = choice.get("function")
    return nested.get("name") if isinstance(nested, Mapping) else choice.get("name")


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
    names = {_known(_name_of(item), declared, "tool_choice.tools") for item in listed}
    return [tool for tool in declared if tool["name"] in names]


def _known(name: object, declared: Sequence[Mapping[str, Any]], param: str) -> str:
    if isinstance(name, str) and name in {tool["name"] for tool in declared}:
        return name
    raise ResponsesError(f"Tool choice {name!r} not found in 'tools' parameter.", param)


def _shown(tool: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return one function as the response repeats it."""
    where = f"tools[{index}]"
    if tool.get("type") != "function":
        raise ResponsesError(
            f"Tools of type {tool.get('type')!r} are not supported; only functions of the caller.",
            f"{where}.type",
            "invalid_value",
        )
    nested = tool.get("function")
    body = {**tool, **nested} if isinstance(nested, Mapping) else tool
    name, description, strict = body.get("name"), body.get("description"), body.get("strict")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ResponsesError(
            f"Invalid '{where}.name': 1 to 64 of a-z, A-Z, 0-9, _ and -.", f"{where}.name"
        )
    if description is not None and not isinstance(description, str):
        raise _wrong(f"{where}.description", "a string")
    if strict is not None and not isinstance(strict, bool):
        raise _wrong(f"{where}.strict", "a boolean")
    return {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": _parameters(body.get("parameters"), f"{where}.parameters"),
        "strict": strict,
    }


def _parameters(parameters: object, where: str) -> dict[str, Any] | None:
    if parameters is None:
        return None
    if not isinstance(parameters, Mapping):
        raise _wrong(where, "an object")
    if parameters.get("type", "object") != "object":
        raise _wrong(f"{where}.type", "'object'")
    if not isinstance(parameters.get("properties", {}), Mapping):
        raise _wrong(f"{where}.properties", "an object")
    return dict(parameters)


def _declared(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return one function as the engine takes it."""
    return {
        "type": "function",
        "name": shown["name"],
        "description": shown["description"] or "",
        "parameters": {"type": "object", "properties": {}, **(shown["parameters"] or {})},
        "strict": bool(shown["strict"]),
    }


def _wrong(where: str, wanted: str) -> ResponsesError:
    return ResponsesError(f"Invalid type for '{where}': expected {wanted}.", where)
