"""Responses of one caller: created by a run of the swarm, kept, read, cancelled and forgotten."""

import json
import time
import uuid
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from mail.api import MAILSwarm
from mail.api.posting import MessagePoster
from mail.core.events import TERMINAL_KINDS, TaskEvent
from mail.core.runtime.runs import FollowedRun, Run
from mail.core.runtime.waiters import RunEnd
from mail.core.tasks import MAILTask, TaskState
from mail.core.usage import Usage
from mail.db.records import IdempotencyRow
from mail.responses_api.items import Answer, Conversation, NoSuchResponse, ResponsesError, Tail
from mail.responses_api.output import (
    ResponseEnding,
    WorkShown,
    closing_events,
    ended_response,
    error_event,
    moment,
    new_response,
    opening_events,
    own_ending,
)
from mail.responses_api.records import Record, Records, is_key
from mail.responses_api.request import ResponseRequest

MAX_LOOKED_UP: Final = 32
"""So many of the last calls with results are looked up, to find the task that made them."""
_ADDED: Final = "\n\nThe user adds:\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The plan of a run: a message to a task, or results for its open calls.

    ``results`` are in the documented shape; None for a message. ``before`` is what the task has
    used so far.
    """

    task_id: str
    body: str = ""
    results: list[dict[str, Any]] | None = None
    before: Usage


async def plan_run(request: ResponseRequest, records: Records, swarm: MessagePoster) -> RunPlan:
    """Find the task that a request goes on with, and what it gives it. Nothing is changed.

    Raises:
        ResponsesError: an unknown or outdated previous response, one whose task still runs, results
            for unknown calls, or open calls without results.
    """
    tail = request.conversation.tail
    task = await _continued(request, tail, records, swarm)
    if task is None:
        return _new_task(request.conversation, tail)
    waiting = {call["call_id"]: None for call in task.breakpoints}
    results = [answer for answer in tail.answers if answer.call_id in waiting]
    if not results and request.previous_response_id is None:
        return _new_task(request.conversation, tail)  # it was told in full: no call is open
    _refuse_strangers(tail, [a for a in tail.answers if a.call_id not in waiting])
    if results:
        outputs = {answer.call_id: answer.output for answer in results}
        if tail.words:  # what the user says after them goes to the agent with the last one
            outputs[results[-1].call_id] += f"{_ADDED}{tail.words}"
        given = [{"call_id": call_id, "content": output} for call_id, output in outputs.items()]
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
    if not tail.words.strip():
        raise ResponsesError("'input' contains no new user message.", "input")
    body = request.conversation.as_text()
    return RunPlan(task_id=task.task_id, body=body, before=task.total_usage)


def _new_task(conversation: Conversation, tail: Tail) -> RunPlan:
    _refuse_strangers(tail, tail.answers)
    body = conversation.as_text()
    if not body.strip():
        raise ResponsesError("'input' contains no message.", "input")
    return RunPlan(task_id=str(uuid.uuid4()), body=body, before=Usage.none())


async def _continued(
    request: ResponseRequest, tail: Tail, records: Records, swarm: MessagePoster
) -> MAILTask | None:
    """Return the task that the request names, by its previous response or by its calls."""
    previous = request.previous_response_id
    if previous is not None:
        return await _previous(previous, records, swarm)
    items = _newest_answered(tail)
    for call_id, item_ids in items.items():
        task_id = await records.task_of(call_id, item_ids)
        task = None if task_id is None else await swarm.read_task(task_id, with_events=False)
        if task is not None:
            return task
    task_id = await records.paused_on(items) if items else None
    return None if task_id is None else await swarm.read_task(task_id, with_events=False)


def _newest_answered(tail: Tail) -> dict[str, list[str]]:
    """Return the calls that the last results are for, newest first, and the ids of their items.

    Both are bounded, because each is looked up.
    """
    newest = dict.fromkeys(answer.call_id for answer in reversed(tail.answers))
    items: dict[str, list[str]] = {call_id: [] for call_id in islice(newest, MAX_LOOKED_UP)}
    of_these = (call for call in reversed(tail.calls) if call.item_id and call.call_id in items)
    for call in islice(of_these, MAX_LOOKED_UP):
        items[call.call_id].append(call.item_id or "")
    return items


async def _previous(response_id: str, records: Records, swarm: MessagePoster) -> MAILTask:
    record = await records.load(response_id)
    # Callers of 1.3.6 name the task itself: there, a response had the id of its task.
    task_id = response_id if record is None else record.task_id
    task = await swarm.read_task(task_id, with_events=False) if is_key(task_id) else None
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
    if later is not None and later.status == "completed":
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


_PAGE_EVENTS: Final = 256
_PAGE_BYTES: Final = 64 * 1024
_CUT = "the stream ended before the response did; poll the response to see its end"
_GONE = "the task continued without this response"


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that was accepted, its run, and the record of its response.

    ``keyed`` tells that it may be repeated, so that its response is made from the run's log alone;
    ``repeats`` that this is a repeat.
    """

    request: ResponseRequest
    run: Run | FollowedRun
    record: Record
    keyed: bool = False
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class ResponsesBridge:
    """One caller's swarm behind the Responses API.

    Args:
        swarm: The caller's swarm.
        records: The store of the caller's responses.
        model: The name of the model in responses when the request names none.
    """

    swarm: MAILSwarm
    records: Records
    model: str

    async def plan(self, request: ResponseRequest) -> RunPlan:
        """Find the task that a request is for; see `mail.responses_api.bridge.plan_run`."""
        previous = request.previous_response_id
        if previous is not None:  # nobody may have seen the end of the newest response yet
            record = await self.records.load(previous)
            newest = await self.records.newest(previous if record is None else record.task_id)
            if newest is not None and await self.records.load(newest) is not None:
                await self.retrieve(newest)
        return await plan_run(request, self.records, self.swarm)

    async def begin(
        self,
        request: ResponseRequest,
        plan: RunPlan,
        *,
        max_steps: int | None = None,
        once: IdempotencyRow | None = None,
    ) -> Exchange:
        """Start what was planned.

        Args:
            request: The request.
            plan: The result of `plan` for it.
            max_steps: Messages that the run may process; the swarm's own limit when None.
            once: The caller's idempotency key. With it, the response is known as soon as the
                request is accepted; see `follow`.

        Raises:
            ResponsesError, ProtocolError, TaskError: it is refused; nothing was started.
            KeyTaken: the key has been used before; nothing was started.
        """
        response = new_response(
            f"resp_{uuid.uuid4().hex}", plan.task_id, int(time.time()), self.model, request.echo
        )
        record = Record(response=response, before=plan.before)
        resumes = plan.results is not None
        more: dict[str, Any] = {} if max_steps is None else {"max_steps": max_steps}
        if once is not None:
            more["once"] = once._replace(answer=_kept(record))
            more["memories"] = tuple(self.records.rows(record))
        run = await self.swarm.open_run(
            plan.body,
            "Tool Response" if resumes else "Task Request",
            task_id=plan.task_id,
            resume_from="breakpoint_tool_call" if resumes else None,
            breakpoint_tool_call_result=plan.results,
            streamed=request.stream,
            offer=request.offer,
            **more,
        )
        record = replace(record, began=run.began)
        await self.records.begin(record)
        return Exchange(request, run, record, keyed=once is not None)

    async def follow(self, request: ResponseRequest, known: IdempotencyRow) -> Exchange:
        """Return the exchange that an equal request began.

        Args:
            request: The request.
            known: The row of its idempotency key.
        """
        kept = json.loads(known.answer or "{}")
        response = new_response(
            kept["id"], known.task_id, kept["created_at"], kept["model"], request.echo
        )
        before = Usage.from_dict(kept["before"])
        record = Record(response=response, before=before, began=known.first_event)
        await self.records.complete(record)
        run = await self.swarm.follow_run(known)
        return Exchange(request, run, record, keyed=True, repeats=True)

    async def finish(self, exchange: Exchange, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the end of the run and return the response.

        Raises:
            TaskTimeout, ShuttingDown: the run goes on without the caller.
        """
        return await self.ended(exchange, await exchange.run.end(timeout))

    async def ended(self, exchange: Exchange, end: RunEnd) -> dict[str, Any]:
        """Return the response of a run that has ended, and keep it."""
        paused = end.status is TaskState.PAUSED
        calls = end.breakpoints if paused else ()
        ending = ResponseEnding(status=end.status, body=end.body, calls=calls, at=moment(end.at))
        return await self._end(exchange, ending)

    async def events(
        self, exchange: Exchange, events: AsyncIterator[TaskEvent]
    ) -> AsyncGenerator[dict[str, Any] | None, None]:
        """Yield the response's stream, numbered from 0, and None for what happens and is not shown.

        Args:
            exchange: The exchange, requested with ``stream``.
            events: The events of its run.
        """
        number = 0
        async with aclosing(self._stream(exchange, events)) as stream:
            async for event in stream:
                if event is None:
                    yield None
                else:
                    yield {**event, "sequence_number": number}
                    number += 1

    async def _stream(
        self, exchange: Exchange, events: AsyncIterator[TaskEvent]
    ) -> AsyncGenerator[dict[str, Any] | None, None]:
        for event in opening_events(exchange.record.response):
            yield event
        last: TaskEvent | None = None
        work = WorkShown(exchange.record.id, exchange.request.offer.names)
        async for found in events:
            shown = list(work.events(found))
            for event in shown:
                yield event
            if not shown:
                yield None
            last = found if found.kind in TERMINAL_KINDS else last
            del found
        if last is None:
            yield error_event(_CUT, "server_error")
            return
        response = await self._end(exchange, ResponseEnding.of_event(last), work.items)
        for event in closing_events(response):
            yield event

    async def retrieve(self, response_id: str) -> Record:
        """Return a response as it is now; if nobody saw its end, it gets it from its task.

        Raises:
            NoSuchResponse: the caller has none of this id.
        """
        kept = await self.records.load(response_id)
        if kept is None:
            raise NoSuchResponse(response_id)
        if kept.ended:
            return kept
        task = await self.swarm.read_task(kept.task_id, with_events=False)
        found = await self._own_ending(kept)  # later: what ended by then is in the log
        if found is not None:
            ending, used = found
            return await self._settled(kept, ending, used)
        if task is not None and task.status is TaskState.RUNNING:
            return kept
        newest = await self.records.newest(kept.task_id)
        if task is None or newest not in (None, kept.id):
            ending = ResponseEnding(status=TaskState.FAILED, body=_GONE)
        else:
            ending = ResponseEnding.of_task(task)
        return await self._settled(kept, ending, task.total_usage if task else None)

    async def delete(self, response_id: str) -> dict[str, Any]:
        """Forget a response; its task stays.

        Raises:
            NoSuchResponse: the caller has none of this id.
        """
        if await self.records.load(response_id) is None:
            raise NoSuchResponse(response_id)
        await self.records.delete(response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    async def cancel(self, response_id: str) -> None:
        """Cancel the task of a response that has not ended; a cancelled one stays as it is.

        Raises:
            NoSuchResponse: the caller has none of this id.
            ResponsesError: it has ended already, or its task goes on for a later response.
        """
        found = await self.retrieve(response_id)
        if found.status == "cancelled":
            return
        if found.ended:
            raise ResponsesError(f"Cannot cancel a {found.status} response.", "response_id")
        newest = await self.records.newest(found.task_id)
        if newest not in (None, found.id):
            raise ResponsesError(
                f"The task continues for a later response; cancel '{newest}' instead.",
                "response_id",
            )
        await self.swarm.cancel_task(found.task_id)

    async def _own_ending(self, record: Record) -> tuple[ResponseEnding, Usage | None] | None:
        """Return how the response's own run ended, if that is known by now."""
        if not record.began:
            return None
        async with aclosing(self._events_of(record)) as events:
            return await own_ending(events)

    async def _events_of(self, record: Record) -> AsyncGenerator[TaskEvent, None]:
        """Yield the task's events from the first of the response's run on, a page at a time."""
        store, after = self.records.store, record.began - 1
        while page := deque(
            await store.events(self.records.owner, record.task_id, after, _PAGE_EVENTS, _PAGE_BYTES)
        ):
            after = page[-1].seq
            while page:
                yield page.popleft()

    async def _settled(self, kept: Record, ending: ResponseEnding, used: Usage | None) -> Record:
        settled = await self.records.end(_ended(kept, ending, used))
        if settled is None:
            raise NoSuchResponse(kept.id)
        return settled

    async def _end(
        self, exchange: Exchange, ending: ResponseEnding, work: Sequence[dict[str, Any]] = ()
    ) -> dict[str, Any]:
        record = exchange.record
        found = await self._own_ending(record) if exchange.keyed else None
        task = await self.swarm.read_task(record.task_id, with_events=False)
        used = found[1] if found else task.total_usage if task else None
        ended = _ended(record, ending, used, work)
        await self.records.end(ended)
        return ended.response


def _ended(
    record: Record,
    ending: ResponseEnding,
    after: Usage | None,
    work: Sequence[dict[str, Any]] = (),
) -> Record:
    """Return the record of a response that has ended; ``after`` is what its task had used."""
    used = Usage.none()
    if after is not None:  # money is no part of a response
        names = (name for name in Usage.__slots__ if name != "cost")
        counts = {name: getattr(after, name) - getattr(record.before, name) for name in names}
        used = Usage(**counts)
    at = ending.at or int(time.time())
    return replace(record, response=ended_response(record.response, ending, used, at, work))


def _kept(record: Record) -> str:
    """Return what a repeat of the request needs beside its own fields."""
    names = ("id", "created_at", "model")
    kept = {name: record.response[name] for name in names}
    return json.dumps({**kept, "before": record.before.to_dict()})
