"""Running one task to its end, and what came of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from mail.core.events import TaskEvent
from mail.core.runtime.waiters import RunResult
from mail.core.tasks import MAILTask, TaskState
from mail.core.wire import MAILMessage
from mail.errors import TaskTimeout

if TYPE_CHECKING:
    from mail.api.swarm import MAILSwarm

__all__ = ["Answer", "Outcome", "run_until_complete"]

Answer = str | Callable[[dict[str, Any]], str]
"""The result of a breakpoint call: text, or a function of the call's arguments."""

_NOTED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a task ended.

    Attributes:
        body: The answer, or the reason of a failure.
        subject: The final message's subject.
        status: completed, paused, failed or cancelled.
        message: The final ``broadcast_complete`` message.
        task: The task's record with all of its events.
        breakpoints: The calls that the task still waits for.
    """

    body: str
    subject: str
    status: TaskState
    message: MAILMessage
    task: MAILTask
    breakpoints: list[dict[str, Any]] = field(default_factory=list)

    @property
    def completed(self) -> bool:
        """Tell whether the task has its answer."""
        return self.status is TaskState.COMPLETED

    @property
    def events(self) -> list[TaskEvent]:
        """The task's events in order."""
        return self.task.events

    def calls(self, tool: str | None = None, by: str | None = None) -> list[dict[str, Any]]:
        """Return the arguments of the tool calls that agents made, in order.

        Args:
            tool: Only calls of this tool.
            by: Only calls of this agent.
        """
        made = [event.extra for event in self.events if event.kind == "tool_call"]
        return [
            call["tool_args"]
            for call in made
            if tool in (None, call["tool_name"]) and by in (None, call["caller"])
        ]

    def mail(self, sender: str | None = None, to: str | None = None) -> list[MAILMessage]:
        """Return the task's messages in order.

        Args:
            sender: Only what this agent, user or system sent.
            to: Only what names this agent as a recipient; broadcasts name ``all``.
        """
        return [
            message
            for message in self.task.get_messages()
            if sender in (None, message["message"]["sender"]["address"])
            and (to is None or to in _recipients(message))
        ]


async def run_until_complete(
    swarm: "MAILSwarm",
    body: str,
    *,
    answers: Mapping[str, Answer] | None = None,
    timeout: float = 30.0,
    **options: Any,
) -> Outcome:
    """Post a message, process mail to the end of the run, and return what came of it.

    Args:
        swarm: The swarm.
        body: What the user says.
        answers: By tool name, the results of breakpoint calls: the run goes on with them. A call
            of another tool ends the run paused.
        timeout: Seconds for the whole of it.
        options: As of `MAILSwarm.open_run`: ``task_id``, ``subject``, ``entrypoint``, ….

    Raises:
        TaskTimeout: it took longer; the note says what happened last.
        ProtocolError, TaskError: the message is refused.
    """
    run = await swarm.open_run(body, **options)
    task_id = run.task_id
    try:
        result = await run.result(timeout)
        while result.status is TaskState.PAUSED:
            results = _answers(result, answers or {})
            if results is None:
                break
            run = await swarm.open_run(
                "",
                task_id=task_id,
                resume_from="breakpoint_tool_call",
                breakpoint_tool_call_result=results,
            )
            result = await run.result(timeout)
    except TaskTimeout as error:
        error.add_note(_what_happened(await swarm.read_task(task_id)))
        raise
    task = await swarm.read_task(task_id)
    if task is None:
        raise AssertionError(f"task '{task_id}' ended and is not in the store")
    payload = result.message["message"]
    return Outcome(
        body=payload["body"],
        subject=payload["subject"],
        status=result.status,
        message=result.message,
        task=task,
        breakpoints=result.breakpoints,
    )


def _answers(result: RunResult, answers: Mapping[str, Answer]) -> list[dict[str, str]] | None:
    known = [call for call in result.breakpoints if call["name"] in answers]
    if len(known) < len(result.breakpoints):
        return None
    return [
        {"call_id": call["call_id"], "content": _content(answers[call["name"]], call)}
        for call in known
    ]


def _content(answer: Answer, call: Mapping[str, Any]) -> str:
    return answer if isinstance(answer, str) else answer(from_json(call["arguments"]))


def _what_happened(task: MAILTask | None) -> str:
    events: Sequence[TaskEvent] = task.events[-_NOTED:] if task else ()
    lines = [f"{event.kind}: {event.description}" for event in events]
    return "\n".join(["the last events of the task:", *lines])


def _recipients(message: MAILMessage) -> list[str]:
    payload: Any = message["message"]
    listed = payload.get("recipients") or [payload["recipient"]]
    return [address["address"] for address in listed]
