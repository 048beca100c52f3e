"""Tool calls as messages, and breakpoint calls as callers see them."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from mail.clock import SystemClock
from mail.core.addresses import MAIL_ALL_LOCAL_AGENTS, MAILAddress, create_agent_address
from mail.core.compose import Composer
from mail.core.tools.call import AgentToolCall
from mail.core.wire import MAILMessage, MessageKind

_KINDS: dict[str, MessageKind] = {
    "send_request": "request",
    "send_response": "response",
    "text_output": "response",
    "send_interrupt": "interrupt",
    "send_broadcast": "broadcast",
    "task_complete": "broadcast_complete",
}


def convert_call_to_mail_message(call: AgentToolCall, sender: str, task_id: str) -> MAILMessage:
    """Build the message that a sending tool call stands for.

    Args:
        call: A call of ``send_request``, ``send_response``, ``send_interrupt``,
            ``send_broadcast``, ``task_complete`` or ``text_output``.
        sender: The calling agent's name.
        task_id: The task that the message belongs to.

    Raises:
        ValueError: the tool sends nothing.
        KeyError: a required argument is missing.
    """
    kind = _KINDS.get(call.tool_name)
    if kind is None:
        raise ValueError(f"Unknown tool name: {call.tool_name}")
    subject, body = _words(kind, call.tool_args)
    recipients = _recipients(kind, call.tool_args)
    composer = Composer("", SystemClock())
    envelope = composer.message(
        kind, task_id, create_agent_address(sender), recipients, subject, body
    )
    return envelope._replace(sender_swarm=None, recipient_swarms=()).to_wire()


def _words(kind: MessageKind, args: Mapping[str, Any]) -> tuple[str, str]:
    if kind == "broadcast_complete":
        return "Task complete", args["finish_message"]
    if kind == "response":  # plain text becomes one, and has neither subject nor body
        return args.get("subject") or "", args.get("body") or args.get("content") or ""
    return args["subject"], args["body"]


def _recipients(kind: MessageKind, args: Mapping[str, Any]) -> list[MAILAddress]:
    if kind == "broadcast_complete":
        return [MAIL_ALL_LOCAL_AGENTS]
    if kind != "broadcast":
        return [create_agent_address(args["target"])]
    targets = args.get("targets") or ()
    names = [targets] if isinstance(targets, str) else list(targets)
    return [create_agent_address(name) for name in names] or [MAIL_ALL_LOCAL_AGENTS]


def normalize_breakpoint_tool_call(
    call: AgentToolCall, raw: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a breakpoint call in the one shape that callers parse.

    Args:
        call: The call.
        raw: The provider's own item for it (``function_call`` or ``tool_use``), if there is one.

    Returns:
        ``arguments`` (JSON text), ``call_id``, ``name``, ``type``, ``id`` and ``status``.
    """
    item = raw or {}
    if item.get("type") == "tool_use":
        item = {"call_id": item.get("id"), "name": item.get("name"), "arguments": item.get("input")}
    call_id = item.get("call_id") or call.tool_call_id
    arguments = call.tool_args if item.get("arguments") is None else item["arguments"]
    if not isinstance(arguments, str):
        arguments = to_json(arguments).decode()
    return {
        "arguments": arguments,
        "call_id": call_id,
        "name": item.get("name") or call.tool_name,
        "type": "function_call",
        "id": item.get("id") or f"fc_{call_id}",
        "status": item.get("status") or "completed",
    }
