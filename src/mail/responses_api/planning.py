"""What a request means to the tasks that are there: a new one, one more message, or results."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from mail.core.tasks import MAILTask, TaskState
from mail.core.usage import Usage
from mail.responses_api.items import Answer, Conversation, Tail
from mail.responses_api.problems import ResponsesError
from mail.responses_api.records import Records, is_key
from mail.responses_api.request import ResponseRequest

__all__ = ["RunPlan", "TaskSource", "plan_run"]

_ADDED: Final = "\n\nThe user adds:\n"


class TaskSource(Protocol):
    """Where the caller's tasks are read."""

    async def read_task(self, task_id: str, *, with_events: bool = True) -> MAILTask | None:
        """Return a task of the caller's, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What to do: a message to a task, or results for its open calls.

    ``results`` are in the documented shape; None for a message. ``before`` is what the task has
    used so far.
    """

    task_id: str
    body: str = ""
    results: list[dict[str, Any]] | None = None
    before: Usage


async def plan_run(request: ResponseRequest, records: Records, tasks: TaskSource) -> RunPlan:
    """Find the task that a request goes on with, and what it gives it. Nothing is changed.

    Raises:
        ResponsesError: an unknown or outdated previous response, one whose task still runs, results
            for unknown calls, or open calls without results.
    """
    tail = request.conversation.tail
    task = await _continued(request, tail, records, tasks)
    if task is None:
        return _new_task(request.conversation, tail)
    waiting = {call["call_id"]: None for call in task.breakpoints}
    results = [answer for answer in tail.answers if answer.call_id in waiting]
    if not results and request.previous_response_id is None:
        return _new_task(request.conversation, tail)  # it was told in full: no call is open
    _refuse_strangers(tail, [a for a in tail.answers if a.call_id not in waiting])
    if results:
        given = _results(results, tail.words)
        return RunPlan(task_id=task.task_id, results=given, before=task.total_usage)
    if waiting:
        raise ResponsesError(
            f"No tool output found for function call {next(iter(waiting))}.", "input"
        )
    if task.status is TaskState.RUNNING:
        raise ResponsesError(
            "The conversation is still in progress; wait for its response, or cancel it.",
            "previous_response_id",
        )
    body = _new_words(request.conversation, tail)
    return RunPlan(task_id=task.task_id, body=body, before=task.total_usage)


def _new_task(conversation: Conversation, tail: Tail) -> RunPlan:
    _refuse_strangers(tail, tail.answers)
    body = conversation.as_text()
    if not body.strip():
        raise ResponsesError("'input' contains no message.", "input")
    return RunPlan(task_id=str(uuid.uuid4()), body=body, before=Usage.none())


async def _continued(
    request: ResponseRequest, tail: Tail, records: Records, tasks: TaskSource
) -> MAILTask | None:
    """Return the task that the request names, by its previous response or by its calls."""
    previous = request.previous_response_id
    if previous is not None:
        return await _previous(previous, records, tasks)
    items: dict[str, list[str]] = {answer.call_id: [] for answer in reversed(tail.answers)}
    for call in tail.calls:
        if call.item_id and call.call_id in items:
            items[call.call_id].append(call.item_id)
    for call_id, item_ids in items.items():
        task_id = await records.task_of(call_id, item_ids)
        task = None if task_id is None else await tasks.read_task(task_id, with_events=False)
        if task is not None:
            return task
    task_id = await records.paused_on(items) if items else None
    return None if task_id is None else await tasks.read_task(task_id, with_events=False)


async def _previous(response_id: str, records: Records, tasks: TaskSource) -> MAILTask:
    record = await records.load(response_id)
    # Callers of 1.3.6 name the task itself: there, a response had the id of its task.
    task_id = response_id if record is None else record.task_id
    task = await tasks.read_task(task_id, with_events=False) if is_key(task_id) else None
    if task is None:
        raise ResponsesError(
            f"Previous response with id '{response_id[:80]}' not found.",
            "previous_response_id",
            "previous_response_not_found",
        )
    newest = await records.newest(task_id)
    if record is None or newest in (None, response_id):
        return task
    later = await records.load(newest or "")
    if later is not None and later.response["status"] == "completed":
        raise ResponsesError(
            f"The conversation has continued after '{response_id}', and tasks have no branches; "
            f"continue with '{newest}'.",
            "previous_response_id",
        )
    return task


def _refuse_strangers(tail: Tail, answers: Sequence[Answer]) -> None:
    """Refuse results of calls that neither wait nor are part of the conversation as told."""
    told = {call.call_id for call in tail.calls}
    for answer in answers:
        if answer.call_id not in told:
            raise ResponsesError(
                f"No tool call found for function call output with call_id {answer.call_id}.",
                "input",
            )


def _results(answers: Sequence[Answer], words: str) -> list[dict[str, Any]]:
    """Return the results; what the user says after them goes to the agent with the last one."""
    results = {answer.call_id: answer.output for answer in answers}
    if words:
        results[answers[-1].call_id] += f"{_ADDED}{words}"
    return [{"call_id": call_id, "content": output} for call_id, output in results.items()]


def _new_words(conversation: Conversation, tail: Tail) -> str:
    if not tail.words.strip():
        raise ResponsesError("'input' contains no new user message.", "input")
    return conversation.as_text()
