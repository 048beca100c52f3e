"""What the OpenAPI document says about the bodies of requests."""

from collections.abc import Mapping
from typing import Any, Final

from mail.server.bodies import MSG_TYPES, UNSEEN
from mail.server.openapi.words import TASK_ID, Shape, words

__all__ = ["REQUESTS"]

_HEALTH_PATTERN: Final = rf"^[^{UNSEEN}]*[^{UNSEEN}\s][^{UNSEEN}]*$"

_NOT_BLANK: Final = r"[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
"""What `str.strip` leaves, spelt out: engines differ in what their ``\\s`` matches."""


def _text_in(name: str) -> dict[str, Any]:
    return {name: {"type": "string", "pattern": _NOT_BLANK}}


def _message_rules() -> dict[str, Any]:
    """Say in JSON Schema what `MessageIn` demands across its fields."""
    fresh = {"resume_from": {"type": "null"}}
    resumed = {"resume_from": {"const": "user_response"}, "task_id": {"type": "string"}}
    no_body = {"body": {"enum": ["", None]}}
    answers = {
        "type": "object",
        "properties": {"breakpoint_tool_call_result": {"not": {"type": "null"}}},
        "required": ["breakpoint_tool_call_result"],
    }
    answering = {
        "resume_from": {"const": "breakpoint_tool_call"},
        "task_id": {"type": "string"},
        "kwargs": answers,
    }
    again = ["resume_from", "task_id"]
    return {
        "anyOf": [
            {"properties": _text_in("body") | fresh, "required": ["body"]},
            {"properties": _text_in("body") | resumed, "required": ["body", *again]},
            {"properties": answering, "required": ["kwargs", *again]},
            {"properties": _text_in("message") | no_body | fresh, "required": ["message"]},
            {
                "properties": _text_in("message") | no_body | resumed,
                "required": ["message", *again],
            },
        ]
    }


REQUESTS: Final[Mapping[str, Shape]] = {
    "HealthIn": Shape(
        "What the server shall say about its health.",
        {
            "status": words(
                "Shown by `GET /health`; not blank, without control or invisible characters.",
                minLength=1,
                maxLength=256,
                pattern=_HEALTH_PATTERN,
            )
        },
        open=True,
    ),
    "MessageIn": Shape(
        "A message to the swarm. A null counts as absent; fields that are not listed are ignored. "
        "There must be a text that is not blank, or the results of breakpoint calls; and with "
        "`resume_from` there must be a `task_id`.",
        {
            "body": words("The text of the message."),
            "message": words("An older name of `body`, read when that is empty.", deprecated=True),
            "subject": words("The subject line.", default="New Message"),
            "msg_type": words(
                "What kind of message it is. An empty text means the default.",
                enum=[*MSG_TYPES, ""],
                default="request",
            ),
            "entrypoint": words(
                "The agent that gets the message: one with `enable_entrypoint`. The swarm's own "
                "entrypoint when absent or empty."
            ),
            "show_events": words("Answer with the events of the task, too."),
            "stream": words("Answer with a stream of events in place of JSON."),
            "stream_tokens": words("In the stream, also the pieces of the models' replies."),
            "task_id": words(
                "A name for the new task, or the task to go on with. Made up when absent.",
                **TASK_ID,
            ),
            "resume_from": words(
                "How to go on with a task: with another message, or with the results of its open "
                "breakpoint calls."
            ),
            "kwargs": words("Options of the run."),
        },
        open=True,
        more=_message_rules(),
    ),
    "MessageOptions": Shape(
        "Options of a run; here an unknown name is an error.",
        {
            "max_steps": words(
                "The most messages that this run may process. It can lower the server's limit, "
                "not raise it."
            ),
            "breakpoint_tool_call_result": words(
                "Results of breakpoint calls: a text, `{call_id, content}` or a list of these."
            ),
            "breakpoint_tool_caller": words("Of no effect; taken from older clients."),
            "timeout": words("Seconds to wait for the answer. The task outlives them."),
        },
    ),
    "SwarmIn": Shape(
        "A swarm to serve from now on.",
        {"json": words("The definition of one swarm, as the text of a JSON object.", minLength=1)},
        open=True,
    ),
}
