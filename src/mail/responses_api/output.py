"""The response object and its stream: what a run of a task looks like to OpenAI's SDK."""

import hashlib
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from mail.core.events import TERMINAL_KINDS, TaskEvent
from mail.core.tasks import MAILTask, TaskState
from mail.core.tools.catalogue import TEXT_TOOL
from mail.core.usage import Usage

_STATUS: Final = {
    TaskState.COMPLETED: "completed",
    TaskState.PAUSED: "completed",
    TaskState.FAILED: "failed",
    TaskState.CANCELLED: "cancelled",
    TaskState.RUNNING: "in_progress",
}
"""A pause completes a response: its output is the calls that the caller has to answer."""

_UNSET: Final = (
    "incomplete_details",
    "max_output_tokens",
    "max_tool_calls",
    "reasoning",
    "temperature",
    "top_p",
    "user",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseEnding:
    """The end of a run: its answer or its reason, and the calls that wait for the caller.

    ``at`` is when, in seconds since 1970; 0 when that is not known.
    """

    status: TaskState
    body: str
    calls: Sequence[Mapping[str, Any]] = ()
    at: int = 0

    @classmethod
    def of_event(cls, event: TaskEvent) -> "ResponseEnding":
        """Read a terminal event."""
        extra = event.extra
        status = TaskState(extra.get("status") or TaskState.COMPLETED)
        return cls(
            status=status,
            body=str(extra.get("response") or ""),
            calls=list(extra.get("breakpoints") or ()) if status is TaskState.PAUSED else (),
            at=moment(event.timestamp),
        )

    @classmethod
    def of_task(cls, task: MAILTask) -> "ResponseEnding":
        """Read a task that does not run; the task must come with its events."""
        endings = [event for event in task.events if event.kind in ("task_complete", "task_error")]
        body = str(endings[-1].extra.get("response") or "") if endings else ""
        paused = task.status is TaskState.PAUSED
        return cls(status=task.status, body=body, calls=task.breakpoints if paused else ())


def moment(timestamp: str) -> int:
    """Return an RFC 3339 time in seconds since 1970; 0 when it is none."""
    try:
        return int(datetime.fromisoformat(timestamp).timestamp())
    except (ValueError, OverflowError):
        return 0


async def own_ending(
    events: AsyncIterator[TaskEvent],
) -> tuple[ResponseEnding, Usage | None] | None:
    """Return how a run ended.

    Args:
        events: The task's events in order, from the first of the run on.

    Returns:
        The ending, and what the task had used by then (None when the run logged no model call); or
        None when the run has not ended. Later runs of the task change neither.
    """
    used: Usage | None = None
    async for event in events:
        if event.kind == "model_usage" and "task_usage" in event.extra:
            used = Usage.from_dict(event.extra["task_usage"])
        elif event.kind in TERMINAL_KINDS:
            return ResponseEnding.of_event(event), used
        del event  # the next one may be as large
    return None


def new_response(
    response_id: str, task_id: str, created_at: int, model: str, echo: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the response to a request that was accepted just now.

    ``task_id`` is our addition: the task under which the run's events can be read.
    """
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "status": "in_progress",
        "error": None,
        "output": [],
        "usage": None,
        "truncation": "disabled",
        **dict.fromkeys(_UNSET),
        **echo,
        "model": echo.get("model") or model,
        "task_id": task_id,
    }


def ended_response(
    response: Mapping[str, Any],
    ending: ResponseEnding,
    used: Usage,
    completed_at: int,
    work: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return the response with its output, its usage and its last status.

    ``work`` are the items that its stream has shown already; they come first.
    """
    status = _STATUS[ending.status]
    ended = {**response, "status": status, "usage": _usage(used), "output": [*work]}
    if status == "completed":
        ended["completed_at"] = completed_at
        ended["output"] += _output(response, ending)
    elif status == "failed":
        ended["error"] = {"code": "server_error", "message": ending.body}
    return ended


def function_call_id(task_id: str, call_id: str) -> str:
    """Return the id of a call's item: no other task has it."""
    return f"fc_{hashlib.sha256(f'{task_id}/{call_id}'.encode()).hexdigest()[:32]}"


def _output(response: Mapping[str, Any], ending: ResponseEnding) -> list[dict[str, Any]]:
    if ending.status is TaskState.PAUSED:
        return [_call(response["task_id"], call) for call in ending.calls]
    text = {"type": "output_text", "text": ending.body, "annotations": [], "logprobs": []}
    return [
        {
            "id": f"msg_{response['id'].removeprefix('resp_')}",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [text],
        }
    ]


def _call(task_id: str, call: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": function_call_id(task_id, call["call_id"]),
        "type": "function_call",
        "status": "completed",
        "call_id": call["call_id"],
        "name": call["name"],
        "arguments": call["arguments"],
    }


def _usage(used: Usage) -> dict[str, Any]:
    return {
        "input_tokens": used.prompt_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": used.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": used.total_tokens,
    }


_PIECE: Final = re.compile(r".{1,200}\S{0,200}\s?", re.DOTALL)
_LAST: Final = {"completed": "response.completed", "failed": "response.failed"}

_LEFT_OUT: Final = frozenset({"task_complete", TEXT_TOOL})
"""Tools whose calls are the answer."""

Event = dict[str, Any]


def opening_events(response: Mapping[str, Any]) -> Iterator[Event]:
    """Yield what a stream begins with."""
    yield {"type": "response.created", "response": dict(response)}
    yield {"type": "response.in_progress", "response": dict(response)}


class WorkShown:
    """The work of the agents as a reasoning item: a part of its summary for each call of a tool.

    Args:
        response_id: The response whose stream shows it.
        handed_out: Functions of the caller's: their calls are items of their own.
    """

    def __init__(self, response_id: str, handed_out: Set[str] = frozenset()) -> None:
        self._id = f"rs_{response_id.removeprefix('resp_')}"
        self._left_out = _LEFT_OUT | handed_out
        self._summary: list[dict[str, str]] = []

    @property
    def items(self) -> list[dict[str, Any]]:
        """The item, or none when nothing was shown."""
        return [self._item("completed", self._summary)] if self._summary else []

    def events(self, event: TaskEvent) -> Iterator[Event]:
        """Yield the events that show an event of the run; most show nothing."""
        text = self._text(event)
        if text is None:
            return
        at = {"item_id": self._id, "output_index": 0, "summary_index": len(self._summary)}
        part = {"type": "summary_text", "text": text}
        kind = "response.reasoning_summary"
        if not self._summary:
            begun = self._item("in_progress", [])
            yield {"type": "response.output_item.added", "output_index": 0, "item": begun}
        self._summary.append(part)
        yield {"type": f"{kind}_part.added", **at, "part": {**part, "text": ""}}
        yield {"type": f"{kind}_text.delta", **at, "delta": text}
        yield {"type": f"{kind}_text.done", **at, "text": text}
        yield {"type": f"{kind}_part.done", **at, "part": part}

    def _item(self, status: str, summary: list[dict[str, str]]) -> dict[str, Any]:
        return {"id": self._id, "type": "reasoning", "status": status, "summary": [*summary]}

    def _text(self, event: TaskEvent) -> str | None:
        name = event.extra.get("tool_name")
        if event.kind != "tool_call" or name in self._left_out:
            return None
        arguments = event.extra.get("tool_args") or {}
        target = arguments.get("target") if isinstance(arguments, Mapping) else None
        to = f" to {target}" if isinstance(target, str) else ""
        return f"{event.extra.get('caller')} calls {name}{to}"


def closing_events(response: Mapping[str, Any]) -> Iterator[Event]:
    """Yield the output of an ended response, item by item, and the terminal event."""
    for index, item in enumerate(response["output"]):
        yield from _EVENTS_OF[item["type"]](item, index)
    kind = _LAST.get(response["status"], "response.incomplete")
    yield {"type": kind, "response": dict(response)}


def error_event(message: str, code: str | None = None) -> Event:
    """Return the event of a stream that ends before its response does."""
    return {"type": "error", "code": code, "message": message, "param": None}


def _shown_events(item: Mapping[str, Any], index: int) -> Iterator[Event]:
    """End an item whose parts were streamed while the work went on."""
    yield {"type": "response.output_item.done", "output_index": index, "item": dict(item)}


def _message_events(item: Mapping[str, Any], index: int) -> Iterator[Event]:
    [part] = item["content"]
    text, at = part["text"], {"item_id": item["id"], "output_index": index, "content_index": 0}
    begun = {**item, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
    for piece in _pieces(text):
        yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **at, "text": text, "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": part}
    yield {"type": "response.output_item.done", "output_index": index, "item": dict(item)}


def _call_events(item: Mapping[str, Any], index: int) -> Iterator[Event]:
    at = {"item_id": item["id"], "output_index": index}
    begun = {**item, "status": "in_progress", "arguments": ""}
    kind = "response.function_call_arguments"
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    for piece in _pieces(item["arguments"]):
        yield {"type": f"{kind}.delta", **at, "delta": piece}
    done = {"name": item["name"], "arguments": item["arguments"]}
    yield {"type": f"{kind}.done", **at, **done}
    yield {"type": "response.output_item.done", "output_index": index, "item": dict(item)}


def _pieces(text: str) -> Iterator[str]:
    """Split text after a word, 200 characters or some more at a time; endless words are cut."""
    return (found[0] for found in _PIECE.finditer(text))


_EVENTS_OF: Final = {
    "function_call": _call_events,
    "message": _message_events,
    "reasoning": _shown_events,
}
"""Type of an output item to what makes its events."""
