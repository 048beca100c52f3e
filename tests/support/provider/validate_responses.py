"""What OpenAI refuses of a Responses request: parameters, tools, and its input."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.support.provider.issued import Issued
from tests.support.provider.validate_completions import strict_problems
from tests.support.provider.validate_responses_items import item_problems
from tests.support.provider.validate_responses_turns import pairing_problems, reasoning_problems

__all__ = ["problems_of"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KEYS = {
    "background",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
}
_INCLUDES = {
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
}
# Of each built-in tool, the parameters that it cannot do without.
_BUILT_IN: dict[str, set[str]] = {
    "web_search": set(),
    "web_search_2025_08_26": set(),
    "web_search_preview": set(),
    "web_search_preview_2025_03_11": set(),
    "code_interpreter": {"container"},
    "file_search": {"vector_store_ids"},
    "image_generation": set(),
    "local_shell": set(),
    "mcp": {"server_label"},
}
_FUNCTION_KEYS = {"type", "name", "description", "parameters", "strict", "defer_loading"}


def problems_of(body: Mapping[str, Any], issued: Issued) -> list[str]:
    """Return what is wrong with the body of a request."""
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items or given == "":
        return ["Missing required parameter: 'input', text or a list with at least one item"]
    shapes = list(item_problems(items))
    if shapes:
        return shapes  # what follows relies on items that are well formed
    return [
        *_parameter_problems(body),
        *_tool_problems(body.get("tools")),
        *_choice_problems(body.get("tool_choice"), body.get("tools") or []),
        *_store_problems(items, body),
        *pairing_problems(items),
        *reasoning_problems(items, issued),
    ]


def _parameter_problems(body: Mapping[str, Any]) -> Iterator[str]:
    for key in body.keys() - _KEYS:
        yield f"Unknown parameter: '{key}'."
    if not isinstance(body.get("model"), str):
        yield "Missing required parameter: 'model'."
    for value in set(body.get("include") or ()) - _INCLUDES:
        yield f"Invalid value: '{value}' in 'include'"
    instructions = body.get("instructions")
    if not isinstance(instructions, str | None):
        yield "Invalid type for 'instructions': expected text"
    limit = body.get("max_output_tokens")
    if limit is not None and (not isinstance(limit, int) or limit < 16):
        yield "Invalid 'max_output_tokens': expected an integer of at least 16"


def _tool_problems(tools: Any) -> Iterator[str]:
    if tools is None:
        return
    if not isinstance(tools, list):
        yield "Invalid type for 'tools': expected a list"
        return
    names: list[Any] = []
    for at, tool in enumerate(tools):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind == "function":
            names.append(tool.get("name"))
            yield from (f"tools[{at}]: {problem}" for problem in _function_problems(tool))
        elif kind not in _BUILT_IN:
            yield f"Invalid value: '{kind}' in 'tools[{at}].type'"
        else:
            for key in _BUILT_IN[kind] - tool.keys():
                yield f"Missing required parameter: 'tools[{at}].{key}'"
    for name in {name for name in names if names.count(name) > 1}:
        yield f"two tools are named '{name}'"


def _function_problems(tool: Mapping[str, Any]) -> Iterator[str]:
    if not _NAME.fullmatch(str(tool.get("name") or "")):
        yield "Missing required parameter: 'name'"
    for key in tool.keys() - _FUNCTION_KEYS:
        yield f"Unknown parameter: '{key}'"
    schema = tool.get("parameters") or {"type": "object", "properties": {}}
    if schema.get("type") != "object":
        yield "'parameters' must be an object schema"
    if tool.get("strict"):
        yield from strict_problems(schema)


def _choice_problems(choice: Any, tools: Sequence[dict[str, Any]]) -> Iterator[str]:
    if choice is None or choice in ("auto", "none"):
        return
    offered = [tool.get("name") or tool.get("type") for tool in tools]
    if not tools:
        yield "'tool_choice' can only force a tool where there are 'tools'"
    elif isinstance(choice, dict):
        kind = choice.get("type")
        name = choice.get("name") if kind == "function" else kind
        if kind == "function" and (name is None or "function" in choice):
            yield "'tool_choice' must name a function: {type, name}"
        elif kind != "allowed_tools" and name not in offered:
            yield f"'tool_choice' names the tool '{name}', which is not offered"
    elif choice != "required":
        yield f"Invalid value: '{choice}' for 'tool_choice'"


def _store_problems(items: Sequence[dict[str, Any]], body: Mapping[str, Any]) -> Iterator[str]:
    """Nothing that was said before is kept here, so all of it must be in the input."""
    if body.get("previous_response_id") or body.get("conversation"):
        yield "Previous response not found: this provider keeps none"
    stored = body.get("store", True)
    for at, item in enumerate(items):
        if item.get("type") == "item_reference":
            yield f"input[{at}]: Item with id '{item.get('id')}' not found"
        elif item.get("type") == "reasoning" and not stored and not item.get("encrypted_content"):
            yield (
                f"input[{at}]: Item with id '{item.get('id')}' not found. Items are not persisted "
                "when `store` is set to false: it needs its encrypted_content"
            )
