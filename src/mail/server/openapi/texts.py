"""What the OpenAPI document says about each shape and field, and what types alone do not tell.

One entry per component, one line per field. A test holds the table against the types: no shape or
field without its words, no words without their field.
"""

from collections.abc import Mapping
from typing import Any, Final

from mail.core.events import EVENT_KINDS, STREAM_KINDS
from mail.server.openapi.requests import REQUESTS
from mail.server.openapi.words import TASK_ID, Shape, Words, words

__all__ = ["TEXTS"]

_JSON: Final = "application/json"
_TASK_ID: Final = words("Which task.", **TASK_ID)
_INSTANT: Final[dict[str, Any]] = {"format": "date-time"}
_COUNT: Final[dict[str, Any]] = {"minimum": 0}
_CALLER_ROLE: Final[dict[str, Any]] = {"enum": ["admin", "user", "agent"]}


def _message_fields(identifier: str, *, several: bool) -> dict[str, Words]:
    """Describe the fields of a message; two kinds name one recipient, two kinds name several."""
    to = {
        "recipients": words("To whom it goes."),
        "recipient_swarms": words("Their swarms.", sometimes=True),
    }
    one = {
        "recipient": words("To whom it goes."),
        "recipient_swarm": words("Its swarm; this one when it is missing.", sometimes=True),
    }
    return {
        "task_id": words("The task that the message belongs to."),
        identifier: words("The id of this exchange."),
        "sender": words("From whom it comes."),
        "subject": words("The subject line."),
        "body": words("The text."),
        "sender_swarm": words("The sender's swarm; this one when it is missing.", sometimes=True),
        "routing_info": words("How it travels between swarms.", sometimes=True),
    } | (to if several else one)


_EVENT: Final[dict[str, Words]] = {
    "event": words("The kind of event.", enum=sorted(EVENT_KINDS)),
    "id": words("Its number in the task, counted from 1.", pattern="^[0-9]+$"),
    "retry": words("Not used in records: always null."),
}

_SERVER: Final[dict[str, Shape]] = {
    "GetRootResponse": Shape(
        "What runs here.",
        {
            "name": words("The name of the protocol.", const="mail"),
            "version": words("The version of this implementation."),
            "protocol_version": words("The version of the protocol that it speaks."),
            "swarm": words("The swarm that is served."),
            "status": words("Whether it works or is about to stop.", enum=["running", "draining"]),
            "uptime": words("Seconds since the start.", **_COUNT),
        },
    ),
    "SwarmInfo": Shape(
        "What a swarm says about itself.",
        {
            "name": words("Its name."),
            "version": words("The version that its definition gives."),
            "description": words("What it is for."),
            "entrypoint": words("The agent that users talk to."),
            "keywords": words("Words to find it by."),
            "public": words("Whether it wants to be listed."),
        },
    ),
    "GetHealthResponse": Shape(
        "How the server is.",
        {
            "status": words(
                "`healthy` or what an administrator has set; `degraded` while the store does not "
                "work, `draining` while the server stops."
            ),
            "swarm_name": words("The swarm that is served."),
            "timestamp": words("When the status was set.", **_INSTANT),
        },
    ),
    "GetWhoamiResponse": Shape(
        "Who the caller is.",
        {
            "id": words("The caller's id."),
            "role": words("The caller's role.", enum=["admin", "user"]),
            "username": words("The same as `id`."),
        },
    ),
    "SwarmStatus": Shape(
        "Whether the swarm can be used.",
        {
            "name": words("The swarm that is served.", type="string"),
            "status": words("Always `ready`.", const="ready"),
        },
    ),
    "GetStatusResponse": Shape(
        "The state of the swarm, and of the caller's instance of it.",
        {
            "swarm": words("The swarm."),
            "active_users": words("How many users have an instance now.", **_COUNT),
            "user_mail_ready": words("Whether the caller has one."),
            "user_task_running": words("Whether the caller's instance runs."),
        },
    ),
    "GetSwarmsDumpResponse": Shape(
        "The swarm has been written to the log.",
        {
            "status": words("Always `dumped`.", const="dumped"),
            "swarm_name": words("The swarm that is served."),
        },
    ),
    "PostSwarmsLoadResponse": Shape(
        "The swarm has been replaced.",
        {
            "status": words("Always `success`.", const="success"),
            "swarm_name": words("The swarm that is served from now on."),
        },
    ),
    "LoginResponse": Shape(
        "The token to call with.", {"token": words("The presented key itself serves as token.")}
    ),
    "TokenInfo": Shape(
        "Whose a token is.",
        {
            "role": words("The role that it gives.", **_CALLER_ROLE),
            "id": words("The caller that it stands for."),
            "api_key": words("The token."),
        },
    ),
    "ErrorAnswer": Shape(
        "What went wrong. Every error has this shape.",
        {
            "detail": words("What is wrong and what to change."),
            "errors": words("One entry per wrong field; often none."),
            "task_id": words("The task that the request was about.", sometimes=True),
            "request_id": words("Finds the cause in the server's log.", sometimes=True),
        },
    ),
    "FieldProblem": Shape(
        "What is wrong with one field.",
        {
            "field": words("Where it is, with dots between the parts of the path."),
            "problem": words("What is wrong with it."),
        },
    ),
}

_TASKS: Final[dict[str, Shape]] = {
    "PostMessageResponse": Shape(
        "How a run ended, or where it paused.",
        {
            "response": words("The answer; at a pause the open calls as JSON text."),
            "events": words("All events of the task, if they were asked for; else null."),
            "task_id": _TASK_ID,
            "subject": words("The subject of the answer, for example `::task_complete::`."),
            "status": words("What became of the run.", enum=["completed", "paused", "cancelled"]),
            "breakpoints": words("The calls that wait for their results."),
        },
    ),
    "TaskRecord": Shape(
        "A task with everything that has happened in it.",
        {
            "task_id": _TASK_ID,
            "task_owner": words("Whose task it is, as `role:id@swarm`."),
            "task_contributors": words("Who takes part in it, each as `role:id@swarm`."),
            "start_time": words("When it began.", **_INSTANT),
            "events": words("Its log, oldest first."),
            "is_running": words("Whether its mail is being worked on."),
            "completed": words("Whether its last run ended with an answer."),
            "status": words(
                "Where it stands.", enum=["running", "paused", "completed", "failed", "cancelled"]
            ),
            "task_message_queue": words("Mail that waits until the task goes on."),
            "remote_swarms": words("Other swarms that take part."),
            "breakpoints": words("The calls that wait for their results."),
            "title": words("A title, if somebody gave it one."),
            "usage": words("What its model calls have used so far."),
        },
    ),
    "TaskPage": Shape(
        "Some of the caller's tasks, newest first.",
        {
            "tasks": words("The tasks by id."),
            "next_cursor": words("The `cursor` of the next page; null on the last one."),
        },
    ),
    "EventData": Shape(
        "What an event says. The events that end a run carry the answer's fields as well.",
        {
            "timestamp": words("When it happened.", **_INSTANT),
            "task_id": _TASK_ID,
            "description": words("What happened, for people."),
            "extra_data": words("What happened, for programs; each kind has its own fields."),
        },
        open=True,
    ),
    "ServerEvent": Shape("One event of a task.", _EVENT | {"data": words("What it says.")}),
    "LoggedEvent": Shape(
        "One event in the record of a task.",
        _EVENT | {"data": words("An `EventData` object as JSON text.", contentMediaType=_JSON)},
    ),
    "StreamEvent": Shape(
        "One server-sent event. `data` fits `EventData`, except for the kinds without an `id`: "
        "`ping` is a heartbeat with `timestamp` and `task_id`, `model_delta` a piece of a model's "
        "reply, and `server_drain` the last word of a server that stops.",
        {
            "event": words("The kind of event.", enum=sorted(EVENT_KINDS | STREAM_KINDS)),
            "data": words("What it says, as one line of JSON.", contentMediaType=_JSON),
            "id": words("Its number in the task, from 1.", sometimes=True, pattern="^[0-9]+$"),
            "retry": words(
                "Milliseconds to wait before a reconnection; with the first event.", sometimes=True
            ),
        },
    ),
    "BreakpointCall": Shape(
        "A tool call that waits for its result from outside.",
        {
            "id": words("Names the call when it is answered."),
            "name": words("The tool."),
            "arguments": words("Its arguments as JSON text."),
            "call_id": words("The same as `id`."),
            "type": words("Always `function_call`.", const="function_call"),
            "status": words("Always `completed`.", const="completed"),
        },
    ),
    "TaskUsage": Shape(
        "What the model calls of a task have used.",
        {
            "total": words("All of them together."),
            "agents": words("By agent, for those that have made any."),
        },
    ),
    "TokenUsage": Shape(
        "What model calls have used.",
        {
            "calls": words("How many calls.", **_COUNT),
            "prompt_tokens": words("Tokens that were sent.", **_COUNT),
            "completion_tokens": words("Tokens that came back.", **_COUNT),
            "total_tokens": words("Both together.", **_COUNT),
            "cached_tokens": words("Sent tokens that the provider had cached.", **_COUNT),
            "reasoning_tokens": words("Returned tokens that were reasoning.", **_COUNT),
            "cost": words("US dollars, if the price of any call is known.", sometimes=True),
        },
    ),
}

_MAIL: Final[dict[str, Shape]] = {
    "MAILMessage": Shape(
        "A message as it travels.",
        {
            "id": words("Its own id."),
            "timestamp": words("When it was sent."),
            "message": words("What it holds."),
            "msg_type": words("What kind of message it is."),
        },
    ),
    "MAILAddress": Shape(
        "Somebody who sends or gets mail.",
        {"address_type": words("What kind of party."), "address": words("Its name.")},
    ),
    "MAILRequest": Shape("A request.", _message_fields("request_id", several=False)),
    "MAILResponse": Shape("The answer to a request.", _message_fields("request_id", several=False)),
    "MAILBroadcast": Shape("Word to several.", _message_fields("broadcast_id", several=True)),
    "MAILInterrupt": Shape(
        "A message that stops what its recipients do.",
        _message_fields("interrupt_id", several=True),
    ),
}

TEXTS: Final[Mapping[str, Shape]] = {**REQUESTS, **_SERVER, **_TASKS, **_MAIL}
"""Name of a component to what is said about it."""
