"""Small agents for the tests of the library surface."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any
from xml.etree import ElementTree

from mail import AgentToolCall, MAILAgentTemplate
from mail.core.agents import AgentOutput

__all__ = ["Agent", "call", "completer", "newest", "template_of"]

Agent = Callable[[list[dict[str, Any]], Any], Awaitable[AgentOutput]]


def call(name: str, **args: Any) -> AgentToolCall:
    """Return a tool call as a model makes it."""
    call_id = f"call_{uuid.uuid4().hex}"
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": call_id}]}
    return AgentToolCall(tool_name=name, tool_args=args, tool_call_id=call_id, completion=message)


def newest(messages: list[dict[str, Any]]) -> dict[str, str]:
    """Return sender, subject and body of the newest mail."""
    content = next(m["content"] for m in reversed(messages) if m.get("role") == "user")
    root = ElementTree.fromstring(content.strip())
    return {name: root.findtext(name, "") for name in ("from", "subject", "body")}


async def completer(messages: list[dict[str, Any]], tool_choice: Any) -> AgentOutput:
    """Complete at once with what was asked."""
    mail = newest(messages)
    answer = f"{mail['from']}: {mail['subject']}: {mail['body']}"
    return None, [call("task_complete", finish_message=answer)]


def template_of(function: Agent, name: str = "boss", **fields: Any) -> MAILAgentTemplate:
    """Return the template of an agent that is an entrypoint and supervisor, if not told else."""
    defaults: dict[str, Any] = {
        "comm_targets": [],
        "actions": [],
        "agent_params": {},
        "enable_entrypoint": True,
        "can_complete_tasks": True,
    }
    return MAILAgentTemplate(name=name, factory=lambda **_: function, **(defaults | fields))


async def never(messages: list[dict[str, Any]], tool_choice: Any) -> AgentOutput:
    """Think for ever."""
    await asyncio.Event().wait()
    raise AssertionError
