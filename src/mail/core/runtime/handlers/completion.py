"""task_complete: the supervisor's final answer."""

from mail.core.runtime.tool_context import Desk
from mail.core.runtime.turn import EventDraft, Outcome
from mail.core.tasks import TaskState
from mail.core.tools.call import AgentToolCall
from mail.core.tools.catalogue import TaskCompleteArgs, parse_arguments

__all__ = ["handle_complete"]


async def handle_complete(desk: Desk, call: AgentToolCall) -> Outcome:
    """End the task with an answer; on a task that has ended already it changes nothing."""
    args = parse_arguments(call.tool_name, call.tool_args, TaskCompleteArgs)
    if desk.turn.task.row.state not in (TaskState.RUNNING, TaskState.PAUSED):
        again = EventDraft(
            "task_complete_call_duplicate",
            f"agent {desk.name} called task_complete on already completed task",
            {"caller": desk.name},
        )
        return Outcome(details="task already completed", events=(again,))
    event = EventDraft(
        "task_complete_call",
        f"agent {desk.name} called task_complete, full response to follow",
        {"caller": desk.name},
    )
    return Outcome(details="task completed", completes=args.finish_message, events=(event,))
