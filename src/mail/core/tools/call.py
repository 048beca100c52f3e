"""One tool call as a model returned it (docs: ``AgentToolCall``)."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, Field, model_validator

INVALID_JSON_KEY: Final = "__invalid_json__"
"""The only key of ``tool_args`` when the model's arguments were no JSON object: their text, cut."""
TOO_LONG_KEY: Final = "__too_long__"
"""The only key of ``tool_args`` when the model's arguments were too long: how long they were."""


def problem_of_arguments(name: str, arguments: Mapping[str, Any]) -> str | None:
    """Return why no tool can be called with arguments; None if one can.

    Args:
        name: The tool's name.
        arguments: The arguments, or what stands in their place (`INVALID_JSON_KEY`,
            `TOO_LONG_KEY`).
    """
    if TOO_LONG_KEY in arguments:
        return f"the arguments of '{name}' are too long: {str(arguments[TOO_LONG_KEY])[:200]}"
    if INVALID_JSON_KEY in arguments:
        raw = str(arguments[INVALID_JSON_KEY])[:200]
        return f"the arguments of '{name}' are not valid JSON: {raw}"
    return None


class AgentToolCall(BaseModel):
    """A tool call and the provider output it came in.

    ``completion`` is the assistant message of the chat-completions format, ``responses`` the
    output items of the Responses format; one of them must be filled. All calls of one reply
    share the same value.

    Raises:
        ValidationError: both are empty.
    """

    tool_name: str
    tool_args: dict[str, Any]
    tool_call_id: str
    completion: dict[str, Any] = Field(default_factory=dict)
    responses: list[dict[str, Any]] = Field(default_factory=list)
    reasoning: list[str] | None = None
    preamble: str | None = None

    @model_validator(mode="after")
    def _has_origin(self) -> "AgentToolCall":
        if not self.completion and not self.responses:
            raise ValueError("Either 'completion' or 'responses' must be defined (non-empty).")
        return self

    def create_response_msg(self, content: str) -> dict[str, Any]:
        """Return the history entry that answers this call, in the format the call came in."""
        if self.completion:
            return {
                "role": "tool",
                "name": self.tool_name,
                "content": content,
                "tool_call_id": self.tool_call_id,
            }
        return {"type": "function_call_output", "call_id": self.tool_call_id, "output": content}


def to_be_answered(call: AgentToolCall) -> str:
    """Return what it takes to answer a call later: its name, its id, and the format it came in."""
    came_in: dict[str, Any] = {"completion": {"role": "assistant"}}
    if not call.completion:
        came_in = {"responses": [{"type": "function_call"}]}
    names = {"tool_name": call.tool_name, "tool_call_id": call.tool_call_id}
    return AgentToolCall(**names, tool_args={}, **came_in).model_dump_json()
