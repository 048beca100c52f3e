"""An agent's tool declarations, converted once for each wire format."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, overload

from pydantic_core import from_json, to_json

from mail.core.agents import ToolChoice
from mail.core.tools.schema import flat_tool, get_tool_spec_name, nested_tool
from mail.llm.request import Wire

__all__ = ["ToolSet", "choice_name", "tools_for"]


class ToolSet(Sequence[Mapping[str, Any]]):
    """Tool declarations in either style, each name once: the first declaration of a name stays.

    What `for_wire` returns is the same, byte for byte, in every call, so that providers can cache
    it.
    """

    def __init__(self, tools: Iterable[Mapping[str, Any]] = ()) -> None:
        named: dict[str, Mapping[str, Any]] = {}
        for position, tool in enumerate(tools):
            named.setdefault(get_tool_spec_name(tool) or f"#{position}", tool)
        self._nested, self._written = _layouts(to_json(list(named.values())))

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        return self._nested[index]

    def __len__(self) -> int:
        return len(self._nested)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self._nested)

    def for_wire(self, wire: Wire) -> list[dict[str, Any]]:
        """Return a fresh copy in a wire's layout; libraries change what they are given."""
        tools: list[dict[str, Any]] = from_json(self._written[wire])
        return tools


@lru_cache(maxsize=256)  # every caller's agents have the same tools
def _layouts(tools: bytes) -> tuple[list[dict[str, Any]], dict[Wire, bytes]]:
    """Convert declarations into the layouts of all wires; the first one is shared, not changed."""
    declared = from_json(tools)
    nested = [nested_tool(tool) for tool in declared]
    written = to_json(nested)
    flat = to_json([flat_tool(tool) for tool in declared])
    return nested, {"completions": written, "anthropic": written, "responses": flat}


def tools_for(tools: Sequence[Mapping[str, Any]], wire: Wire) -> list[dict[str, Any]]:
    """Return tool declarations in a wire's layout, as a fresh copy."""
    return (tools if isinstance(tools, ToolSet) else ToolSet(tools)).for_wire(wire)


def choice_name(choice: ToolChoice) -> str | None:
    """Return the name of the one tool that a choice forces, in either format, or None."""
    if isinstance(choice, str):
        return None
    return get_tool_spec_name(choice)
