"""Tool declarations are converted once and go out the same, byte for byte."""

import copy

import pytest
from pydantic_core import to_json

import mail.llm.tools as tool_module
from mail.core.tools.build import create_mail_tools
from mail.llm.request import Wire
from mail.llm.tools import ToolSet, choice_name, flat_tool, nested_tool, tools_for
from tests.llm.support import TOOL

FLAT = {"type": "function", "name": "look_up", "parameters": {"type": "object"}, "strict": False}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
MCP = {"type": "mcp", "server_label": "docs", "allowed_tools": ["a"]}
WIRES: tuple[Wire, ...] = ("completions", "responses", "anthropic")


@pytest.mark.parametrize("given", [True, False, None])
@pytest.mark.parametrize("nested", [True, False])
def test_strict_is_always_said_in_the_flat_layout(given: bool | None, nested: bool) -> None:
    """The Responses API takes its absence for true."""
    body = {"name": "f", "parameters": {}} | ({} if given is None else {"strict": given})
    tool = {"type": "function", "function": body} if nested else {"type": "function", **body}
    assert flat_tool(tool)["strict"] is bool(given)
    assert ("strict" in nested_tool(tool)["function"]) is (given is not None)


@pytest.mark.parametrize("tool", [SEARCH, CODE, MCP])
@pytest.mark.parametrize("wire", WIRES)
def test_the_providers_own_tools_are_left_alone(tool: dict[str, object], wire: Wire) -> None:
    (sent,) = ToolSet([tool]).for_wire(wire)
    assert sent == tool


def test_the_first_declaration_of_a_name_stays() -> None:
    other = {**FLAT, "description": "another"}
    tools = ToolSet([TOOL, other, SEARCH, {**SEARCH, "max_uses": 1}, CODE, CODE])
    assert tools.for_wire("completions") == [TOOL, SEARCH, CODE, CODE]
    assert [choice_name(dict(tool)) for tool in tools] == ["look_up", "web_search", None, None]


@pytest.mark.parametrize("wire", WIRES)
def test_each_copy_is_fresh_and_the_same(wire: Wire) -> None:
    declared = [copy.deepcopy(TOOL), copy.deepcopy(FLAT) | {"name": "other"}, dict(SEARCH)]
    tools = ToolSet(declared)
    first = tools.for_wire(wire)
    written = to_json(first)
    first[0].clear()
    first[1]["name"] = "changed"
    first.append({})
    declared[1]["name"] = "changed too"
    assert to_json(tools.for_wire(wire)) == written
    assert to_json(tools_for(tools, wire)) == written
    assert declared[0] == TOOL


@pytest.mark.parametrize("wire", WIRES)
def test_both_styles_of_the_same_tools_go_out_alike(wire: Wire) -> None:
    styles = [create_mail_tools(["a"], True, style) for style in ("completions", "responses")]
    first, second = (tools_for(style, wire) for style in styles)
    assert first == second
    assert len(first) > 3


def test_a_choice_names_its_tool_in_either_format() -> None:
    assert choice_name({"type": "function", "name": "f"}) == "f"
    assert choice_name({"type": "function", "function": {"name": "f"}}) == "f"
    assert choice_name({"type": "tool", "name": "f"}) == "f"
    assert choice_name({"type": "web_search"}) is None
    assert choice_name("required") is None


def test_equal_sets_share_nothing_that_can_be_changed() -> None:
    first, second = (ToolSet.shared(to_json([FLAT])) for _ in range(2))
    assert isinstance(first[0], dict)
    first[0].clear()
    assert second[0] == nested_tool(FLAT)
    assert ToolSet.shared(to_json([FLAT]))[0] == nested_tool(FLAT)


def test_what_a_caller_offers_is_not_kept() -> None:
    """Callers can send megabytes of declarations, each time others."""
    own = ToolSet.shared(to_json([TOOL]))
    size = tool_module._shared_layouts.cache_info().currsize
    for number in range(3):
        lent = {**FLAT, "name": f"lent_{number}"}
        assert len(ToolSet([*own, lent]).for_wire("responses")) == 2
    assert tool_module._shared_layouts.cache_info().currsize == size
