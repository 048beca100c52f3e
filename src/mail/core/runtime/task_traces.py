"""The spans of a task: of each run that a caller begins, and of each turn, all in one trace.

The trace is that of the task's first message, which is in its log: so it is the same after a
restart, and in every process. The parent of a turn is the span that its message was sent in, if
that is of this trace.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress

from opentelemetry import trace
from opentelemetry.trace import SpanContext, Tracer

from mail import traces
from mail.core.interswarm import wire_task_id
from mail.core.runtime.active_tasks import ActiveTask, Turn
from mail.core.runtime.context import RuntimeContext
from mail.errors import StoreError

RunTurn = Callable[[Turn], Awaitable[None]]


def traced_turns(context: RuntimeContext, run: RunTurn) -> RunTurn:
    """Return what runs a turn in a span; the given function itself if there are no spans."""
    made_by = context.tracer
    if made_by is None:
        return run

    async def run_traced(turn: Turn) -> None:
        task = turn.task
        sender = traces.carried(turn.envelope.routing_info)
        task.trace = home = await _known(context, task) or sender or _derived(context, task)
        parent = sender if sender is not None and sender.trace_id == home.trace_id else home
        span = traces.agent_span(made_by, "invoke_agent", turn.agent, task.task_id, parent)
        with traces.within(span):
            if traces.wants_content(span):
                parts = [{"type": "text", "content": turn.envelope.body}]
                traces.add_content(span, input__messages=[{"role": "user", "parts": parts}])
            await run(turn)

    return run_traced


def in_run(context: RuntimeContext, task: ActiveTask) -> AbstractAsyncContextManager[None]:
    """Let a message or results of a caller's come in the span of the run that they belong to."""
    return nullcontext() if context.tracer is None else _in_run(context, context.tracer, task)


@asynccontextmanager
async def _in_run(
    context: RuntimeContext, made_by: Tracer, task: ActiveTask
) -> AsyncIterator[None]:
    caller, begins = traces.here(), task.span is None
    if task.span is None:
        home = await _known(context, task)
        other = caller if home and caller and caller.trace_id != home.trace_id else None
        parts = "invoke_workflow", context.swarm, task.task_id
        task.span = traces.agent_span(made_by, *parts, home if other else caller or home, other)
        task.trace = home or task.span.get_span_context()
    elif caller is not None:
        task.span.add_link(caller)
    with trace.use_span(task.span, record_exception=False, set_status_on_exception=False):
        try:
            yield
        except BaseException:
            if begins:  # nothing has begun
                task.span = None
            raise


async def _known(context: RuntimeContext, task: ActiveTask) -> SpanContext | None:
    """Return the root of a task's trace; None of a task that is to be."""
    if task.trace is None:
        with suppress(StoreError):  # whoever works on the task learns of it
            for first in await context.store.events(context.owner, task.task_id, limit=1):
                sent = first.extra.get("full_message", {}).get("message", {})
                return traces.carried(sent.get("routing_info") or {}) or _derived(context, task)
    return task.trace


def _derived(context: RuntimeContext, task: ActiveTask) -> SpanContext:
    """Return the root of a task that has none noted, which is the same in all swarms."""
    wire_id = wire_task_id(context.owner.role, task.task_id)
    return traces.derived(f"{task.row.task_owner}/{wire_id}")
