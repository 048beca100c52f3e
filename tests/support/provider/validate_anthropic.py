"""What Anthropic refuses of a Messages request: parameters, tools, thinking, cache marks."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.support.provider.issued import Issued
from tests.support.provider.thinking import adapts, has_budget, interleaves, thinks
from tests.support.provider.validate_anthropic_blocks import message_problems
from tests.support.provider.validate_anthropic_turns import pairing_problems, turn_problems

__all__ = ["problems_of"]

_MAX_MARKS = 4
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_DATED = re.compile(r"[a-z_]+_\d{8}")
_KEYS = {
    "model",
    "messages",
    "max_tokens",
    "cache_control",
    "container",
    "context_management",
    "inference_geo",
    "mcp_servers",
    "metadata",
    "output_config",
    "service_tier",
    "speed",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
}
_TOOL_KEYS = {
    "type",
    "name",
    "description",
    "input_schema",
    "cache_control",
    "strict",
    "defer_loading",
    "eager_input_streaming",
    "allowed_callers",
    "input_examples",
}


def problems_of(
    body: Mapping[str, Any],
    headers: Mapping[str, str] | None,
    issued: Issued,
    *,
    hosted: bool = False,
) -> list[str]:
    """Return what is wrong with the body (and headers, if given) of a request.

    Adaptive thinking goes with forced tools (llm-exe#721), at Bedrock (``hosted``) from Opus 4.7 on
    (langchain-aws#1141).
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return ["messages: at least one message is required"]
    shapes = list(message_problems(messages))
    if shapes:
        return shapes  # what follows relies on messages that are well formed
    thinking = thinks(body)
    exclusive = has_budget(body) or (hosted and thinking and not adapts(body))
    return [
        *_header_problems(headers),
        *_parameter_problems(body),
        *_system_problems(body.get("system")),
        *_tool_problems(body.get("tools")),
        *_choice_problems(body, exclusive=exclusive),
        *_thinking_problems(body, headers),
        *_mark_problems(body),
        *pairing_problems(messages),
        *_tools_missing(body),
        *turn_problems(messages, issued, thinking=thinking, budgeted=not adapts(body)),
    ]


def _header_problems(headers: Mapping[str, str] | None) -> Iterator[str]:
    if headers is not None and not headers.get("anthropic-version"):
        yield "anthropic-version: header is required"


def _parameter_problems(body: Mapping[str, Any]) -> Iterator[str]:
    for key in body.keys() - _KEYS:
        yield f"{key}: Extra inputs are not permitted"
    if not isinstance(body.get("model"), str):
        yield "model: Field required"
    limit = body.get("max_tokens")
    if not isinstance(limit, int) or limit < 1:
        yield "max_tokens: Field required, an integer of at least 1"


def _system_problems(system: Any) -> Iterator[str]:
    if system is None or isinstance(system, str):
        return
    if not isinstance(system, list):
        yield "system: must be a string or a list of text blocks"
        return
    for at, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text" or not block.get("text"):
            yield f"system.{at}: must be a text block that is not empty"


def _tool_problems(tools: Any) -> Iterator[str]:
    if tools is None:
        return
    if not isinstance(tools, list):
        yield "tools: must be a list"
        return
    names: list[Any] = []
    for at, tool in enumerate(tools):
        if not isinstance(tool, dict):
            yield f"tools.{at}: must be an object"
            continue
        names.append(tool.get("name"))
        yield from (f"tools.{at}.{problem}" for problem in _one_tool(tool))
    if len(set(names)) < len(names):
        yield "tools: Tool names must be unique."


def _one_tool(tool: Mapping[str, Any]) -> Iterator[str]:
    kind = tool.get("type", "custom")
    if kind != "custom":
        if not _DATED.fullmatch(str(kind)):
            yield f"type: '{kind}' is no known tool"
        elif not tool.get("name"):
            yield "name: Field required"
        return
    for key in tool.keys() - _TOOL_KEYS:
        yield f"custom.{key}: Extra inputs are not permitted"
    if not _NAME.fullmatch(str(tool.get("name"))):
        yield "custom.name: must match [a-zA-Z0-9_-]{1,128}"
    schema = tool.get("input_schema")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield "custom.input_schema: must be an object schema"


def _choice_problems(body: Mapping[str, Any], *, exclusive: bool) -> Iterator[str]:
    choice = body.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    names = [tool.get("name") for tool in body.get("tools") or () if isinstance(tool, dict)]
    if kind not in ("auto", "any", "tool", "none"):
        yield "tool_choice: must be {type: auto | any | tool | none}"
    elif not names:
        yield "tool_choice: may only be specified while providing tools"
    elif kind == "tool" and choice.get("name") not in names:
        yield f"tool_choice: Tool '{choice.get('name')}' not found in provided tools"
    elif exclusive and kind in ("any", "tool"):
        yield "Thinking may not be enabled when tool_choice forces tool use."


def _thinking_problems(body: Mapping[str, Any], headers: Mapping[str, str] | None) -> Iterator[str]:
    thinking = body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind is None and isinstance(thinking, dict) and "block_binding" in thinking:
        return  # accepted: pydantic-ai PR 7989
    if kind not in ("enabled", "adaptive", "disabled", "between_tools"):
        yield "thinking.type: must be enabled, adaptive or disabled"
    if kind != "enabled":
        return
    if adapts(body):
        yield '"thinking.type.enabled" is not supported for this model.'
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int) or budget < 1024:
        yield "thinking.enabled.budget_tokens: must be at least 1024"
    # With interleaved thinking the budget is that of the whole turn, not of one reply.
    elif not interleaves(body, headers) and budget >= (body.get("max_tokens") or 0):
        yield "`max_tokens` must be greater than `thinking.budget_tokens`"


def _mark_problems(body: Mapping[str, Any]) -> Iterator[str]:
    marks = list(_marks([body.get("tools"), body.get("system"), body.get("messages")]))
    if len(marks) > _MAX_MARKS:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}."
    for mark in marks:
        lifetime = mark.get("ttl", "5m") if isinstance(mark, dict) else None
        if lifetime not in ("5m", "1h") or mark.get("type") != "ephemeral":
            yield f"cache_control: '{mark}' is no mark for the cache"


def _marks(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        if value.get("cache_control") is not None:
            yield value["cache_control"]
        for key, part in value.items():
            if key not in ("cache_control", "input", "input_schema"):
                yield from _marks(part)
    elif isinstance(value, list):
        for part in value:
            yield from _marks(part)


def _tools_missing(body: Mapping[str, Any]) -> Iterator[str]:
    messages: Sequence[dict[str, Any]] = body["messages"]
    kinds = {
        block["type"]
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
    }
    if kinds & {"tool_use", "tool_result"} and not body.get("tools"):
        yield "Requests which include `tool_use` or `tool_result` blocks must define tools"
