"""One tool call as a model returned it (docs: ``AgentToolCall``)."""

from typing import Any, Final

from pydantic import BaseModel, Field, model_validator

__all__ = ["INVALID_JSON_KEY", "AgentToolCall"]

INVALID_JSON_KEY: Final = "__invalid_json__"
"""The only key of ``tool_args`` when the model's arguments were no JSON object: their text, cut."""


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
