"""Commands that post messages: message, message-stream, message-interswarm."""

import argparse
from typing import Any, Final

from mail.cli.exits import DONE
from mail.cli.repl.answers import exit_code, show_answer, show_event
from mail.cli.repl.session import Command, Session
from mail.cli.repl.values import add_json, add_key, json_object, options, targets

__all__ = ["COMMANDS"]

_MSG_TYPES: Final = ("request", "response", "broadcast", "interrupt")
_RESUME_FROM: Final = ("user_response", "breakpoint_tool_call")


async def _message(session: Session, arguments: argparse.Namespace) -> int:
    answer = await session.client.post_message(
        **_fields(arguments), show_events=arguments.show_events, **arguments.kwargs
    )
    if session.wants_json(arguments):
        session.screen.show_json(answer)
    else:
        for event in answer.get("events") or ():
            show_event(session.screen, event["event"], event["data"])
        show_answer(session.screen, dict(answer))
    return exit_code(answer.get("status"))


async def _message_stream(session: Session, arguments: argparse.Namespace) -> int:
    stream = await session.client.post_message_stream(
        **_fields(arguments), stream_tokens=arguments.stream_tokens, **arguments.kwargs
    )
    return await follow(session, stream, as_json=session.wants_json(arguments))


async def follow(session: Session, stream: Any, *, as_json: bool) -> int:
    """Print the events of a stream as they arrive, then the answer of its last run."""
    from mail.cli.repl.answers import event_record

    last: dict[str, Any] | None = None
    async with stream:
        async for event in stream:
            record = event_record(event)
            if as_json:
                session.screen.show_json(record, indent=None)
            else:
                show_event(session.screen, record["event"], record["data"])
            if record["event"] in ("task_complete", "task_error"):
                last = record
    if last is None:
        return DONE
    data = last["data"] if isinstance(last["data"], dict) else {}
    if not as_json:
        show_answer(session.screen, data)
    failed = last["event"] == "task_error"
    return exit_code("failed" if failed else data.get("status"))


async def _message_interswarm(session: Session, arguments: argparse.Namespace) -> int:
    answer = await session.client.send_interswarm_message(
        arguments.body,
        arguments.user_token,
        subject=arguments.subject,
        targets=arguments.targets,
        msg_type=arguments.msg_type,
        task_id=arguments.task_id,
        routing_info=arguments.routing_info,
    )
    response = answer.get("response")
    if isinstance(response, str) and not session.wants_json(arguments):
        session.screen.say(response)
    else:
        session.screen.show_json(answer)
    return DONE


def _fields(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "body": arguments.body,
        "subject": arguments.subject,
        "msg_type": arguments.msg_type,
        "entrypoint": arguments.entrypoint,
        "task_id": arguments.task_id,
        "resume_from": arguments.resume_from,
        "idempotency_key": arguments.idempotency_key,
    }


def _configure_posting(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("body", help="the message")
    add("-s", "--subject", default="New Message", help="the subject")
    add("-t", "--msg-type", default="request", choices=_MSG_TYPES, help="default: request")
    add("-tid", "--task-id", metavar="ID", help="the task to continue, or a name for a new one")
    add("-e", "--entrypoint", metavar="AGENT", help="the agent that receives it")
    add("-rf", "--resume-from", choices=_RESUME_FROM, help="how to continue the task")
    add_key(parser)
    add(
        *("-k", "--kwargs"),
        metavar="JSON",
        type=options,
        default={},
        help="options of the run, for example '{\"max_steps\": 5}'",
    )


def _configure_message(parser: argparse.ArgumentParser) -> None:
    _configure_posting(parser)
    parser.add_argument("-se", "--show-events", action="store_true", help="also show the events")
    add_json(parser)


def _configure_stream(parser: argparse.ArgumentParser) -> None:
    _configure_posting(parser)
    parser.add_argument(
        "-st", "--stream-tokens", action="store_true", help="show model output as it is generated"
    )
    add_json(parser)


def _configure_interswarm(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("body", help="the message")
    add("targets", type=targets, help="'[\"agent@swarm\"]' or agent@swarm")
    add("user_token", help="the token to send with it")
    add("-s", "--subject", help="the subject")
    add("-t", "--msg-type", choices=("request", "broadcast"), help="default: request")
    add("-tid", "--task-id", metavar="ID", help="the task to continue, or a name for a new one")
    add("-ri", "--routing-info", metavar="JSON", type=json_object, help="routing hints")
    add_json(parser)


COMMANDS: Final = (
    Command(
        "message",
        ("m", "msg"),
        "send a message and wait for the answer",
        _configure_message,
        _message,
        "posting message",
    ),
    Command(
        "message-stream",
        ("ms", "msg-s"),
        "send a message and show its events",
        _configure_stream,
        _message_stream,
        "streaming message",
    ),
    Command(
        "message-interswarm",
        ("mi", "msg-i"),
        "send a message to agents of other swarms",
        _configure_interswarm,
        _message_interswarm,
        "posting interswarm message",
    ),
)
