"""``POST /message``: run a task and answer with its end, or with the stream of its events."""

import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mail.auth.callers import Caller
from mail.core.runtime.settings import UNSET
from mail.core.tasks import TaskState
from mail.db.base import IdempotencyRow, Owner
from mail.errors import BudgetExceeded, ShuttingDown, TaskFailed
from mail.logcontext import note
from mail.net.sse_response import event_source
from mail.server.bodies import MessageIn, read_body
from mail.server.deps import BearerToken, Person, State
from mail.server.errors import mail_error_response
from mail.server.idempotency import replayed
from mail.server.state import ServerState, owner_of
from mail.server.streams import CLIENT_GONE, last_event_id, streamed, while_connected

if TYPE_CHECKING:
    from mail.api import MAILSwarm
    from mail.core.runtime import FollowedRun, Run, RunEnd

__all__ = ["add_routes"]


def add_routes(app: FastAPI) -> None:
    """Add the routes of this module."""
    app.post("/message")(message)


async def message(request: Request, state: State, caller: Person, token: BearerToken) -> Response:
    """Take a message of the caller's, and answer when its run ends, or stream its events."""
    body = await read_body(request, MessageIn)
    after = last_event_id(request)
    async with AsyncExitStack() as stack:
        if body.stream:
            stack.enter_context(state.quotas.stream(caller))
        # Before anything is looked up: from here on the caller's swarm stays the same one.
        swarm = await stack.enter_async_context(state.pool.lease(caller, token))
        keyed = await state.keyed(request, caller)
        owner = owner_of(state, caller)
        posting = _Posting(request, state, caller, token, body, after, swarm, owner, stack)
        if keyed is None:
            run: Run | FollowedRun = await posting.begin()
        else:
            run = await keyed.once(posting.begin, posting.follow)
        response = await posting.answer(run)
        return replayed(response) if run.repeats else response


@dataclass(frozen=True, slots=True)
class _Posting:
    """A message on its way to its answer; what that takes is let go with ``held``."""

    request: Request
    state: ServerState
    caller: Caller
    token: str
    body: MessageIn
    after: int
    swarm: "MAILSwarm"
    owner: Owner
    held: AsyncExitStack

    async def begin(self, once: IdempotencyRow | None = None) -> "Run":
        """Have the message accepted."""
        body = self.body
        task_id = body.task_id or str(uuid.uuid4())
        note(task_id=task_id)
        self.state.quotas.message(self.caller, task_id, self.swarm.open_tasks)
        asked = body.options.max_steps
        run: Run = await self.swarm.open_run(
            body.text,
            body.subject or "New Message",
            body.msg_type,
            entrypoint=body.entrypoint or None,
            task_id=task_id,
            resume_from=body.resume_from,
            max_steps=UNSET if asked is None else min(asked, self.state.max_steps(self.caller)),
            breakpoint_tool_call_result=body.options.breakpoint_tool_call_result,
            stream_tokens=body.stream_tokens,
            streamed=body.stream,
            once=once,
        )
        return run

    async def follow(self, known: IdempotencyRow) -> "FollowedRun":
        """Find the run that an equal request began."""
        note(task_id=known.task_id)
        after = self.after if self.body.stream else 0
        followed: FollowedRun = await self.swarm.follow_run(
            known, after=after, stream_tokens=self.body.stream_tokens
        )
        return followed

    async def answer(self, run: "Run | FollowedRun") -> Response:
        """Wait for the run's end as long as the client does, or stream its events."""
        if self.body.stream:
            recheck = partial(self.state.auth.authenticate, self.token)
            events = streamed(run.events(), self.held.pop_all(), recheck)
            return event_source(events, send_timeout=self.state.config.limits.send_timeout)
        try:
            end = await while_connected(self.request, run.end(self.body.options.timeout))
        except ShuttingDown:
            raise ShuttingDown(run.task_id) from None
        return Response(status_code=CLIENT_GONE) if end is None else await self._told(end)

    async def _told(self, end: "RunEnd") -> JSONResponse:
        if end.status is TaskState.FAILED:
            failure = BudgetExceeded if end.over_budget else TaskFailed
            return mail_error_response(failure(end.body, end.task_id))
        events = None
        if self.body.show_events:
            # Up to the run's end, whatever the task has done since.
            logged = await self.state.store.events(self.owner, end.task_id, limit=end.seq)
            events = [event.to_record() for event in logged]
        return JSONResponse(
            {
                "response": end.body,
                "events": events,
                "task_id": end.task_id,
                "subject": end.subject,
                "status": str(end.status),
                "breakpoints": end.breakpoints,
            }
        )
