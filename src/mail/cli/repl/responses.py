"""The command ``responses``: the OpenAI-compatible route of a server with ``--debug``."""

import argparse
from typing import Any, Final

from mail.cli.exits import DONE, FAILED, PAUSED
from mail.cli.repl.session import Command, Session
from mail.cli.repl.values import add_json, add_key, json_list, json_or_text, options

__all__ = ["COMMANDS"]


async def _responses(session: Session, arguments: argparse.Namespace) -> int:
    response = await session.client.debug_post_responses(
        arguments.input,
        arguments.tools,
        instructions=arguments.instructions,
        previous_response_id=arguments.previous_response_id,
        tool_choice=arguments.tool_choice,
        parallel_tool_calls=arguments.parallel_tool_calls,
        idempotency_key=arguments.idempotency_key,
        **arguments.kwargs,
    )
    if session.wants_json(arguments):
        session.screen.show_json(response.model_dump(mode="json"))
    else:
        _show(session, response)
    return _exit_code(response)


def _exit_code(response: Any) -> int:
    if response.status in ("failed", "cancelled"):
        return FAILED
    answered = {i.call_id for i in response.output if i.type == "function_call_output"}
    calls = {i.call_id for i in response.output if i.type == "function_call"}
    return PAUSED if calls - answered else DONE


def _show(session: Session, response: Any) -> None:
    for item in response.output:
        if item.type == "function_call":
            session.screen.say((item.name, "bold yellow"), f"({item.arguments})")
            session.screen.note((f"  call_id: {item.call_id}", "dim"))
        elif item.type == "message":
            session.screen.say("".join(getattr(p, "text", "") for p in item.content))
        else:
            session.screen.note((f"[{item.type}]", "dim"))
    if response.error is not None:
        session.screen.fail(f"error: {response.error.message}")
    state = f" {response.status}" if response.status else ""
    session.screen.note((f"response {response.id}{state}, model {response.model}", "dim"))


def _configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("input", metavar="INPUT", type=json_list, help="input items, as a JSON list")
    add("tools", metavar="TOOLS", type=json_list, help="your tools, as a JSON list ('[]' for none)")
    add("-i", "--instructions", metavar="TEXT", help="a system prompt")
    add("-pr", "--previous-response-id", metavar="ID", help="the response to continue")
    add("-tc", "--tool-choice", metavar="CHOICE", type=json_or_text, help="a name or JSON")
    add(
        *("-ptc", "--parallel-tool-calls"),
        action=argparse.BooleanOptionalAction,
        help="whether the model may call several tools at once",
    )
    add_key(parser)
    add("-k", "--kwargs", metavar="JSON", type=options, default={}, help="more request fields")
    add_json(parser)


COMMANDS: Final = (
    Command(
        "responses",
        ("r", "resp"),
        "call OpenAI's Responses API (servers with --debug)",
        _configure,
        _responses,
        "posting responses",
    ),
)
