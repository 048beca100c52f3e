"""Sending ready-made messages into a swarm, waiting for the answer or not."""

from typing import TYPE_CHECKING, Any

from mail.api.messages import SenderType, compose_posted
from mail.api.options import DEFAULT_TIMEOUT, RunOptions, read_options
from mail.api.reading import PING_INTERVAL, TaskReader
from mail.api.streams import until_timeout
from mail.clock import Clock
from mail.core.events import TaskEvent
from mail.core.runtime.submission import RunRequest
from mail.core.wire import MAILMessage
from mail.errors import TaskError

if TYPE_CHECKING:
    from sse_starlette import EventSourceResponse

__all__ = ["MessageSender"]


class MessageSender(TaskReader):
    """Sends messages in the name of the swarm's user."""

    name: str
    user_id: str
    _clock: Clock

    def build_message(
        self,
        subject: str,
        body: str,
        targets: list[str],
        sender_type: SenderType = "user",
        type: str = "request",
        task_id: str | None = None,
    ) -> MAILMessage:
        """Build a message from this swarm's user.

        Args:
            subject: The subject.
            body: The body.
            targets: Agents, or ``all``; exactly one for a request or response.
            sender_type: admin, agent or user.
            type: request, response, broadcast or interrupt.
            task_id: The task it belongs to; a new one when None.

        Raises:
            ProtocolError: one of these does not make a message.
        """
        return compose_posted(
            self.name,
            self._clock,
            sender=(sender_type, self.user_id),
            kind=type,
            targets=targets,
            subject=subject,
            body=body,
            task_id=task_id,
        )

    async def submit_message(
        self,
        message: MAILMessage,
        timeout: float = DEFAULT_TIMEOUT,
        show_events: bool = False,
        resume_from: str | None = None,
        **kwargs: Any,
    ) -> tuple[MAILMessage, list[TaskEvent]]:
        """Submit a message and wait for the answer; see `post_message`."""
        options = read_options(kwargs, timeout=timeout)
        return await self._finish(message, resume_from, options, show_events)

    async def submit_message_nowait(self, message: MAILMessage, **kwargs: Any) -> None:
        """Store and enqueue a message; nothing is started and nobody waits for an answer.

        Args:
            message: The message.
            kwargs: See `mail.api.options.RUN_OPTIONS`. ``max_steps`` holds for the run;
                ``timeout`` and ``stream_tokens`` mean nothing without somebody who waits.

        Raises:
            ProtocolError, TaskError: the message is refused, or it should resume a paused task.
        """
        options = read_options(kwargs)
        if options.breakpoint_tool_call_result is not None:
            raise TaskError(
                "submit_message_nowait cannot resume a paused task; use submit_message with "
                "resume_from='breakpoint_tool_call'"
            )
        await self._runtime.submit(message, max_steps=options.max_steps)

    async def submit_message_stream(
        self,
        message: MAILMessage,
        timeout: float = DEFAULT_TIMEOUT,
        resume_from: str | None = None,
        *,
        ping_interval: float = PING_INTERVAL,
        **kwargs: Any,
    ) -> "EventSourceResponse":
        """Submit a message and return its run as a server-sent event response.

        The response goes out of a FastAPI or Starlette route as it is. Leaving it early never
        ends the task.

        Args:
            message: The message.
            timeout: Seconds after which the stream ends; the task itself goes on.
            resume_from: As in `post_message`.
            ping_interval: Seconds of silence after which a ``ping`` event goes out.
            kwargs: See `mail.api.options.RUN_OPTIONS`.

        Raises:
            ProtocolError, TaskError: the message or the resume is refused; nothing was started.
        """
        from mail.net.sse_response import event_source

        options = read_options(kwargs, timeout=timeout)
        run = await self._runtime.open_run(
            RunRequest(
                message=message, resume_from=resume_from, streamed=True, **options.for_runtime()
            )
        )
        events = run.events(ping_interval)
        return event_source(until_timeout(events, run.task_id, options.timeout, self._clock))

    async def _finish(
        self,
        message: MAILMessage,
        resume_from: str | None,
        options: RunOptions,
        show_events: bool,
    ) -> tuple[MAILMessage, list[TaskEvent]]:
        answer = await self._runtime.submit_and_wait(
            message, options.timeout, resume_from, **options.for_runtime()
        )
        if not show_events:
            return answer, []
        task = await self._runtime.read_task(message["message"]["task_id"])
        return answer, list(task.events) if task else []
