"""Posting text into a swarm: the calls that compose the message themselves."""

from typing import TYPE_CHECKING, Any

from mail.api.agents import MAILAgent
from mail.api.graph import AgentGraph
from mail.api.messages import check_posted_kind
from mail.api.options import DEFAULT_TIMEOUT, read_options
from mail.api.sending import MessageSender
from mail.core.events import TaskEvent
from mail.core.runtime.following import FollowedRun
from mail.core.runtime.runs import Run
from mail.core.runtime.settings import UNSET, Unset
from mail.core.runtime.submission import RunRequest
from mail.core.tools.offer import Offer
from mail.core.wire import MAILMessage
from mail.db.base import IdempotencyRow, MemoryRow
from mail.errors import TaskError, UnknownAgent
from mail.swarms_json.names import hinted

if TYPE_CHECKING:
    from sse_starlette import EventSourceResponse

    from mail.api.messages import SenderType

__all__ = ["MessagePoster"]


class MessagePoster(MessageSender, AgentGraph[MAILAgent]):
    """Posts text to an entrypoint in the name of the swarm's user."""

    user_role: "SenderType"

    async def post_message(  # noqa: PLR0913 - the documented signature
        self,
        body: str,
        subject: str = "New Message",
        msg_type: str = "request",
        entrypoint: str | None = None,
        show_events: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
        task_id: str | None = None,
        resume_from: str | None = None,
        **kwargs: Any,
    ) -> tuple[MAILMessage, list[TaskEvent]]:
        """Post a message to the entrypoint and wait for the task's answer.

        Args:
            body: The text.
            subject: The subject.
            msg_type: request, response, broadcast or interrupt.
            entrypoint: Another entrypoint than the swarm's.
            show_events: Whether to return the task's events.
            timeout: Seconds to wait; when they are over, the task itself goes on.
            task_id: The task to continue or to name; a new one when None.
            resume_from: None, ``"user_response"`` or ``"breakpoint_tool_call"``.
            kwargs: See `mail.api.options.RUN_OPTIONS`.

        Returns:
            The final ``broadcast_complete`` message and the events, if asked for. A run that
            fails or times out gives a system message with ``::task_error::`` or
            ``::task_timeout::`` as its subject.

        Raises:
            ProtocolError, TaskError: the message or the resume is refused; nothing was started.
        """
        options = read_options(kwargs, timeout=timeout)
        message = self._compose(body, subject, msg_type, entrypoint, task_id, resume_from)
        return await self._finish(message, resume_from, options, show_events)

    async def post_message_and_run(  # noqa: PLR0913 - the documented signature
        self,
        body: str,
        subject: str = "New Message",
        msg_type: str = "request",
        entrypoint: str | None = None,
        show_events: bool = False,
        task_id: str | None = None,
        resume_from: str | None = None,
        max_steps: int | Unset | None = UNSET,
        **kwargs: Any,
    ) -> tuple[MAILMessage, list[TaskEvent]]:
        """Post a message and process mail to its answer; see `post_message`.

        Args:
            max_steps: Messages that the run may process; None lifts the swarm's own limit.
        """
        options = read_options(kwargs, max_steps=max_steps)
        message = self._compose(body, subject, msg_type, entrypoint, task_id, resume_from)
        return await self._finish(message, resume_from, options, show_events)

    async def post_message_stream(
        self,
        body: str,
        subject: str = "New Message",
        msg_type: str = "request",
        entrypoint: str | None = None,
        task_id: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        resume_from: str | None = None,
        **kwargs: Any,
    ) -> "EventSourceResponse":
        """Post a message and return its run as a server-sent event response; see `post_message`."""
        message = self._compose(body, subject, msg_type, entrypoint, task_id, resume_from)
        return await self.submit_message_stream(message, timeout, resume_from, **kwargs)

    async def open_run(  # noqa: PLR0913 - what a caller may ask for
        self,
        body: str,
        subject: str = "New Message",
        msg_type: str = "request",
        *,
        entrypoint: str | None = None,
        task_id: str | None = None,
        resume_from: str | None = None,
        max_steps: int | Unset | None = UNSET,
        breakpoint_tool_call_result: object = None,
        stream_tokens: bool = False,
        streamed: bool = False,
        offer: Offer | None = None,
        once: IdempotencyRow | None = None,
        memories: tuple[MemoryRow, ...] = (),
    ) -> Run:
        """Post a message and return the handle of its run: the result, or the events.

        Args:
            breakpoint_tool_call_result: The results to resume with.
            stream_tokens: Whether the events also carry pieces of model calls.
            streamed: Whether the run's events will be read.
            offer: Tools and instructions that the caller lends the entrypoint.
            once: An idempotency key of the user's; see `follow_run`.
            memories: Rows that are stored with the message.
            The others are those of `post_message`.

        Raises:
            ProtocolError, TaskError: the message or the resume is refused; nothing was started.
            ShuttingDown: the swarm takes no more work.
            KeyTaken: the user has used the idempotency key before; nothing was accepted.
            StoreError: the message could not be stored; nothing was accepted.
        """
        message = self._compose(body, subject, msg_type, entrypoint, task_id, resume_from)
        return await self._runtime.open_run(
            RunRequest(
                message=message,
                resume_from=resume_from,
                breakpoint_tool_call_result=breakpoint_tool_call_result,
                max_steps=max_steps,
                stream_tokens=stream_tokens,
                streamed=streamed,
                offer=offer,
                once=once,
                memories=memories,
            )
        )

    async def follow_run(
        self, known: IdempotencyRow, *, after: int = 0, stream_tokens: bool = False
    ) -> FollowedRun:
        """Return the handle of a run that an earlier request with the same key began.

        Args:
            known: The key's row, as the store has it.
            after: A stream begins behind this event.
            stream_tokens: Whether a stream has ``model_delta`` events, too.
        """
        return await self._runtime.follow_run(known, after=after, stream_tokens=stream_tokens)

    def _compose(
        self,
        body: str,
        subject: str,
        msg_type: str,
        entrypoint: str | None,
        task_id: str | None,
        resume_from: str | None,
    ) -> MAILMessage:
        if resume_from is not None and task_id is None:
            raise TaskError(f"resume_from='{resume_from}' needs the task_id of the task to resume")
        return self.build_message(
            subject,
            body,
            [self._entrypoint(entrypoint)],
            self.user_role,
            check_posted_kind(msg_type),
            task_id,
        )

    def _entrypoint(self, name: str | None) -> str:
        if name is None:
            return self.entrypoint
        entries = [agent.name for agent in self.agents if agent.enable_entrypoint]
        if name in entries:
            return name
        if name not in self.agent_names:
            text = f"entrypoint agent '{name}' not found in swarm"
            raise UnknownAgent(hinted(text, name, self.agent_names))
        listing = ", ".join(f"'{entry}'" for entry in entries)
        raise UnknownAgent(
            f"agent '{name}' takes no messages from users (enable_entrypoint is false); "
            f"entrypoints are {listing}"
        )
