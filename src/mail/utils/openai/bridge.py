"""Responses of one caller: created by a run of the swarm, kept, read, cancelled and forgotten."""

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol

from mail.core.events import TERMINAL_KINDS, TaskEvent
from mail.core.tasks import TaskState
from mail.core.tools.offer import Offer
from mail.core.usage import Usage
from mail.utils.openai.events import closing_events, error_event, opening_events
from mail.utils.openai.output import Ending, ended_response, new_response, own_ending
from mail.utils.openai.planning import Plan, TaskSource, plan_run
from mail.utils.openai.problems import NoSuchResponse, ResponsesError
from mail.utils.openai.records import Record, Records
from mail.utils.openai.request import ResponseRequest

__all__ = ["BridgedRun", "BridgedSwarm", "Exchange", "ResponsesBridge"]

_CUT = "the stream ended before the response did; poll the response to see its end"
_GONE = "the task went on without this response"


class BridgedRun(Protocol):
    """What the bridge asks of a run; `mail.core.runtime.runs.Run` has it."""

    @property
    def began(self) -> int:
        """The number of the run's first event."""

    def leave(self) -> None:
        """Wait no more; the task goes on."""

    async def result(self, timeout: float | None = 3600.0) -> Any:
        """Wait for the end of the run."""

    def events(self, ping_interval: float = 15.0) -> AsyncGenerator[TaskEvent, None]:
        """Yield the run's events."""


class BridgedSwarm(TaskSource, Protocol):
    """What the bridge asks of a swarm; `mail.api.MAILSwarm` has it."""

    async def open_run(  # noqa: PLR0913 - what a caller may ask for
        self,
        body: str,
        subject: str = ...,
        msg_type: str = ...,
        *,
        task_id: str | None = ...,
        resume_from: str | None = ...,
        breakpoint_tool_call_result: object = ...,
        streamed: bool = ...,
        offer: Offer | None = ...,
    ) -> BridgedRun:
        """Post a message and return the handle of its run."""

    async def cancel_task(self, task_id: str) -> object:
        """Cancel an open task."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that was accepted, its run, and the record of its response."""

    request: ResponseRequest
    run: BridgedRun
    record: Record


@dataclass(frozen=True, slots=True)
class ResponsesBridge:
    """One caller's swarm behind the Responses API.

    Args:
        swarm: The caller's swarm.
        records: Where the caller's responses are kept.
        model: What responses call the model, when the request does not name one.
    """

    swarm: BridgedSwarm
    records: Records
    model: str

    async def plan(self, request: ResponseRequest) -> Plan:
        """Find the task that a request is for; see `mail.utils.openai.planning.plan_run`."""
        if request.previous_response_id is not None:
            await self._settle_newest(request.previous_response_id)
        return await plan_run(request, self.records, self.swarm)

    async def _settle_newest(self, previous: str) -> None:
        """Note the end of the conversation's newest response, if nobody has seen it yet."""
        record = await self.records.load(previous)
        newest = await self.records.newest(previous if record is None else record.task_id)
        if newest is not None and await self.records.load(newest) is not None:
            await self._current(newest)

    async def begin(
        self, request: ResponseRequest, plan: Plan, *, max_steps: int | None = None
    ) -> Exchange:
        """Start what was planned.

        Args:
            request: The request.
            plan: What `plan` made of it.
            max_steps: Messages that the run may process; the swarm's own limit when None.

        Raises:
            ResponsesError, ProtocolError, TaskError: it is refused; nothing was started.
        """
        resumes = plan.results is not None
        limit: dict[str, Any] = {} if max_steps is None else {"max_steps": max_steps}
        run = await self.swarm.open_run(
            plan.body,
            "Tool Response" if resumes else "Task Request",
            task_id=plan.task_id,
            resume_from="breakpoint_tool_call" if resumes else None,
            breakpoint_tool_call_result=plan.results,
            streamed=request.stream,
            offer=request.offer,
            **limit,
        )
        response = new_response(
            f"resp_{uuid.uuid4().hex}", plan.task_id, int(time.time()), self.model, request.echo
        )
        record = Record(response=response, before=plan.before, began=run.began)
        await self.records.begin(record)
        return Exchange(request, run, record)

    async def finish(self, exchange: Exchange, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the end of the run and return the response.

        Raises:
            TaskTimeout, ShuttingDown: the run goes on without the caller.
        """
        return await self.ended(exchange, await exchange.run.result(timeout))

    async def ended(self, exchange: Exchange, result: Any) -> dict[str, Any]:
        """Return the response of a run that has ended (a `RunResult`), and keep it."""
        body = result.reason or result.message["message"]["body"]
        ending = Ending(status=result.status, body=body, calls=result.breakpoints)
        return await self._end(exchange.record, ending)

    async def events(
        self, exchange: Exchange, events: AsyncIterator[TaskEvent]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the response's stream, numbered from 0.

        Args:
            exchange: The exchange, requested with ``stream``.
            events: The events of its run.
        """
        number = 0
        async with aclosing(self._stream(exchange, events)) as stream:
            async for event in stream:
                yield {**event, "sequence_number": number}
                number += 1

    async def _stream(
        self, exchange: Exchange, events: AsyncIterator[TaskEvent]
    ) -> AsyncGenerator[dict[str, Any], None]:
        for event in opening_events(exchange.record.response):
            yield event
        last: TaskEvent | None = None
        async for found in events:
            last = found if found.kind in TERMINAL_KINDS else last
        if last is None:
            yield error_event(_CUT, "server_error")
            return
        response = await self._end(exchange.record, Ending.of_event(last))
        for event in closing_events(response):
            yield event

    async def retrieve(self, response_id: str) -> dict[str, Any]:
        """Return a response as it is now.

        Raises:
            NoSuchResponse: the caller has none of this id.
        """
        return (await self._current(response_id)).response

    async def delete(self, response_id: str) -> dict[str, Any]:
        """Forget a response; its task stays.

        Raises:
            NoSuchResponse: the caller has none of this id.
        """
        if await self.records.load(response_id) is None:
            raise NoSuchResponse(response_id)
        await self.records.delete(response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    async def cancel(self, response_id: str) -> dict[str, Any]:
        """Cancel the task of a response that has not ended; a cancelled one stays as it is.

        Raises:
            NoSuchResponse: the caller has none of this id.
            ResponsesError: it has ended already, or its task goes on for a later response.
        """
        record = await self._current(response_id)
        if record.response["status"] == "cancelled":
            return record.response
        if record.ended:
            status = record.response["status"]
            raise ResponsesError(f"Cannot cancel a {status} response.", "response_id")
        newest = await self.records.newest(record.task_id)
        if newest not in (None, record.id):
            raise ResponsesError(
                f"The task goes on for a later response; cancel '{newest}'.", "response_id"
            )
        await self.swarm.cancel_task(record.task_id)
        return (await self._current(response_id)).response

    async def _current(self, response_id: str) -> Record:
        """Return a record; one that nobody saw the end of gets it from its task."""
        record = await self.records.load(response_id)
        if record is None:
            raise NoSuchResponse(response_id)
        if record.ended:
            return record
        task = await self.swarm.read_task(record.task_id)
        found = own_ending(task.events, record.began) if task and record.began else None
        if found is not None:
            ending, used = found
            return await self._settled(record, ending, used)
        if task is not None and task.status is TaskState.RUNNING:
            return record
        newest = await self.records.newest(record.task_id)
        if task is None or newest not in (None, record.id):
            ending = Ending(status=TaskState.FAILED, body=_GONE)
        else:
            ending = Ending.of_task(task)
        return await self._settled(record, ending, task.total_usage if task else None)

    async def _settled(self, record: Record, ending: Ending, used: Usage | None) -> Record:
        return replace(record, response=await self._keep(record, ending, used))

    async def _end(self, record: Record, ending: Ending) -> dict[str, Any]:
        task = await self.swarm.read_task(record.task_id, with_events=False)
        return await self._keep(record, ending, task.total_usage if task else None)

    async def _keep(self, record: Record, ending: Ending, after: Usage | None) -> dict[str, Any]:
        """Keep the end of a response; ``after`` is what its task had used by then."""
        used = Usage.none() if after is None else _difference(after, record.before)
        response = ended_response(record.response, ending, used, int(time.time()))
        await self.records.end(replace(record, response=response))
        return response


def _difference(after: Usage, before: Usage) -> Usage:
    """Return what was used in between; money is no part of a response."""
    counts: Mapping[str, Any] = {
        name: getattr(after, name) - getattr(before, name)
        for name in Usage.__slots__
        if name != "cost"
    }
    return Usage(**counts)
