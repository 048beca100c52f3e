"""An agent's tool declarations, converted once for each wire format, when they are first used."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, overload

from pydantic_core import from_json, to_json

from mail.core.agents import ToolChoice
from mail.core.tools.schema import flat_tool, get_tool_spec_name, nested_tool
from mail.llm.request import Wire


class ToolSet(Sequence[Mapping[str, Any]]):
    """Tool declarations in either style, each name once: the first declaration of a name stays.

    What `for_wire` returns is the same, byte for byte, in every call, so that providers can cache
    it.

    Args:
        tools: The declarations, in either style.
        layouts: Those that were made of them already.
    """

    def __init__(
        self, tools: Iterable[Mapping[str, Any]] = (), *, layouts: "_Layouts | None" = None
    ) -> None:
        self._layouts = layouts or _Layouts(to_json(list(tools)))

    @classmethod
    def shared(cls, *lists: bytes) -> "ToolSet":
        """Return a swarm's own declarations, whose conversion all its callers share.

        Args:
            lists: Lists of declarations as JSON.
        """
        return cls(layouts=_shared_layouts(*lists))

    @cached_property
    def _nested(self) -> list[dict[str, Any]]:
        nested: list[dict[str, Any]] = from_json(self._layouts.written["completions"])
        return nested

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
        tools: list[dict[str, Any]] = from_json(self._layouts.written[wire])
        return tools


class _Layouts:
    """Declarations in the layouts of all wires, as bytes: what is shared cannot be changed."""

    def __init__(self, *lists: bytes) -> None:
        self._lists = lists

    @cached_property
    def written(self) -> Mapping[Wire, bytes]:
        named: dict[str, Mapping[str, Any]] = {}
        for position, tool in enumerate(tool for tools in self._lists for tool in from_json(tools)):
            named.setdefault(get_tool_spec_name(tool) or f"#{position}", tool)
        declared = list(named.values())
        nested = to_json([nested_tool(tool) for tool in declared])
        flat = to_json([flat_tool(tool) for tool in declared])
        return {"completions": nested, "anthropic": nested, "responses": flat}


# Never for what a caller sends.
_shared_layouts = lru_cache(maxsize=1024)(_Layouts)


def tools_for(tools: Sequence[Mapping[str, Any]], wire: Wire) -> list[dict[str, Any]]:
    """Return tool declarations in a wire's layout, as a fresh copy."""
    return (tools if isinstance(tools, ToolSet) else ToolSet(tools)).for_wire(wire)


def choice_name(choice: ToolChoice) -> str | None:
    """Return the name of the one tool that a choice forces, in either format, or None."""
    if isinstance(choice, str):
        return None
    return get_tool_spec_name(choice)
