"""The turn transaction: take one message, call the agent, run its calls, commit everything at once.

In order: the step limit, the history and the incoming mail, the budget, the agent's reply (or the
journaled one, after a crash), a journal commit when actions or breakpoints follow, the calls, and
one final commit with the consumed message, the history, the outgoing mail, the events and the
task's state. Streams, waiters and the scheduler hear of it after the commit.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from weakref import WeakKeyDictionary

from opentelemetry.trace import get_current_span
from pydantic_core import to_json

from mail import metrics
from mail.core.addresses import create_agent_address
from mail.core.agents import AgentCore, ToolChoice
from mail.core.call_context import CallContext, ConsoleSink, NullSink, StreamSink, enter_call
from mail.core.compose import Subject
from mail.core.envelope import Envelope
from mail.core.runtime.active_tasks import ActiveTask, Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.delivery import MailDelivery
from mail.core.runtime.handlers import HANDLERS, ToolContext
from mail.core.runtime.held_calls import accepted_call, describe, runs_calls, split_held
from mail.core.runtime.histories import Entry, History
from mail.core.runtime.settings import RuntimeSettings
from mail.core.runtime.tool_dispatch import ToolDispatcher
from mail.core.runtime.transaction import check_claim, count_attempt, log, log_reports
from mail.core.runtime.turn import ControlKind, Origin, Phase
from mail.core.runtime.turn_end import TurnEnd
from mail.core.runtime.turn_result import (
    REPLY_KEY,
    EventDraft,
    Reply,
    Reprompt,
    ToolOutcome,
    TurnResult,
    milliseconds,
    storable,
)
from mail.core.tools.call import AgentToolCall, problem_of_arguments
from mail.core.tools.catalogue import PASSIVE, TEXT_TOOL
from mail.core.tools.offer import NO_OFFER, Offer
from mail.core.usage import Usage
from mail.db.records import EventRow, JournalRow
from mail.errors import (
    AgentError,
    MAILError,
    ModelError,
    StoreConflict,
    StoreError,
    ToolError,
)
from mail.redaction import logged, redact_foreign
from mail.traces import failed

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Meter:
    """Takes the reports of one turn. ``priced`` tells that money is limited.

    A model call has lasted since the report before it (``since``), the first one since the agent
    was called. ``loop`` is the runtime's event loop; a report may come from any thread.
    """

    context: RuntimeContext
    turn: Turn
    priced: bool
    loop: asyncio.AbstractEventLoop
    since: float

    def report(self, model: str, usage: Usage) -> None:
        """Take what one call to a model used."""
        try:
            here = asyncio.get_running_loop() is self.loop
        except RuntimeError:
            here = False
        if here:
            self._take(model, usage)
        else:  # in order: before an agent function that waits for this thread goes on
            self.loop.call_soon_threadsafe(self._take, model, usage)

    def _take(self, model: str, usage: Usage) -> None:
        turn = self.turn
        model = storable(str(model))
        if not usage.total_tokens:
            usage = replace(usage, total_tokens=usage.prompt_tokens + usage.completion_tokens)
        if self.priced and usage.cost is None and turn.agent not in turn.task.spending.agents:
            logger.warning(
                "the price of '%s' is unknown; it does not count towards task_cost_limit", model
            )
        total = turn.task.spend(turn.agent, usage)
        began, self.since = self.since, time.perf_counter()
        _count(model, usage, self.since - began)
        event = EventDraft(
            "model_usage",
            f"agent {turn.agent} used {usage.total_tokens} tokens of {model}",
            {
                "caller": turn.agent,
                "model": model,
                "usage": usage.to_dict(),
                "task_usage": total.to_dict(),
                "duration_ms": milliseconds(self.since - began),
            },
        )
        turn.reports.append(event.row(turn.task.now()))

    async def wait(self, model: str, error: ModelError, attempt: int, seconds: float) -> None:
        """Tell at once that a model call has failed, and is made again after so many seconds."""
        turn, here = self.turn, asyncio.get_running_loop() is self.loop
        if turn.abandoned or turn.phase is not Phase.MODEL or not here:
            return
        turn.reports.append(_retry(turn, model, error, attempt, seconds))
        with suppress(StoreError):  # the runtime stops
            await log_reports(self.context, turn)


def _count(model: str, usage: Usage, seconds: float) -> None:
    metrics.MODEL_SECONDS.observe(seconds, model)
    for kind in ("prompt", "completion", "cached", "reasoning"):
        if tokens := getattr(usage, f"{kind}_tokens"):
            metrics.MODEL_TOKENS.add(model, kind, amount=tokens)
    if usage.cost:
        metrics.MODEL_COST.add(model, amount=usage.cost)


def _retry(turn: Turn, model: str, error: ModelError, attempt: int, seconds: float) -> EventRow:
    pause = f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"
    model = storable(model or "the model")
    metrics.MODEL_RETRIES.add(model, str(error.status or "none"))
    told = f"{error.status or 'no answer'} from {model}, next attempt in {pause} s"
    known = {"caller": turn.agent, "model": model, "status_code": error.status, "attempt": attempt}
    reason = storable(redact_foreign(str(error)))
    more = {"seconds": round(seconds, 3), "reason": reason}
    event = EventDraft("model_retry", f"agent {turn.agent}: {told}", known | more)
    return event.row(turn.task.now())


_ACT = "no further model calls are made for it. Raise the limit or start a new task."
_FULL = "no further model calls are made for it. Start a new task."


def refusal(turn: Turn, history_bytes: int, context: RuntimeContext) -> str | None:
    """Return why a turn's agent is not called: a limit is reached; None when it may go on.

    What calls that run at the moment will use is unknown, so they may still exceed the budget.

    Args:
        turn: The turn.
        history_bytes: The size of the agent's history.
        context: Has the limits.
    """
    task, agent, settings = turn.task, turn.agent, context.settings
    most = settings.max_history_bytes
    if most is not None and history_bytes > most:
        return (
            f"the history of agent '{agent}' in the task takes {history_bytes:,} bytes; its limit "
            f"is {most:,} (max_history_bytes), so {_FULL}"
        )
    if settings.quota is not None and (full := settings.quota.refusal(context.owner)):
        return f"{full}; {_ACT}"
    if task.exhausted is not None:
        return task.exhausted
    most = settings.task_byte_limit
    if most is not None and task.bytes >= most:
        return (
            f"the records of the task take {task.bytes:,} bytes; its limit is {most:,}, so {_FULL}"
        )
    return _over_budget(task, agent, settings)


def _over_budget(task: ActiveTask, agent: str, settings: RuntimeSettings) -> str | None:
    tokens, cost = settings.task_token_limit, settings.task_cost_limit
    if tokens is None and cost is None:
        return None
    spending = task.spending
    used, coming = spending.total.total_tokens, spending.latest.get(agent, 0)
    if tokens is not None and used + coming >= tokens:
        need = f"the task has used {used:,} tokens"
        if used < tokens:
            need += f", and the next call of agent '{agent}' needs at least {coming:,} more"
        return f"{need}; its budget is {tokens:,} (task_token_limit), so {_ACT}"
    spent = spending.total.cost or 0.0
    if cost is not None and spent >= cost:
        return (
            f"the model calls of the task have cost {_money(spent)}; its budget is {_money(cost)} "
            f"(task_cost_limit), so {_ACT}"
        )
    return None


def _money(dollars: float) -> str:
    """Return US dollars: cents, and as many more places as it takes.

    >>> _money(0.5), _money(1234.5678), _money(0.1 + 0.2)
    ('$0.50', '$1,234.5678', '$0.30')
    """
    whole, _, places = f"{dollars:,.10f}".partition(".")
    return f"${whole}.{places.rstrip('0').ljust(2, '0')}"


_NOTHING = "You returned neither a tool call nor any text. Call one of your tools."
_USE_TOOLS = (
    "You answered in plain text, which is not delivered to anyone here. Use a "
    "tool: send_response or "
    "send_request to an agent, or task_complete if you may finish the task."
)
_HELD = (
    "You answered in plain text, which is not delivered: a person must see your answer before. Use "
    "a tool: send_response to answer an agent, or task_complete if you may finish the task."
)
_YOUR_REQUEST = "your request"
_SPEAK = "Your tool calls were executed. Now give your answer in plain text."


def take_text(turn: Turn, turn_result: TurnResult, reply: Reply, context: RuntimeContext) -> None:
    """Turn text into the answer, a response or a repair turn.

    Raises:
        AgentError: the agent was asked to mend its reply already and did not.
    """
    said = (call.tool_args.get("content") for call in reply.calls if call.tool_name == TEXT_TOOL)
    text = "\n".join(str(each) for each in said if each) or (reply.text or "")
    asker = _asker(turn)
    if turn.manual is not None:
        _speak(turn, turn_result, text, context)
        return
    if not text:
        _repair(turn, turn_result, _NOTHING, context.settings.max_repairs)
    elif _is_held(turn, asker, context):
        _repair(turn, turn_result, _HELD, 1)
    elif turn.queued.finish:
        turn_result.completes = text
    elif asker is not None and asker.address_type == "agent":
        _respond(turn, turn_result, text, asker.address, context)
    elif asker is not None and context.agents[turn.agent].can_complete_tasks:
        turn_result.completes = text
    else:
        _repair(turn, turn_result, _USE_TOOLS, 1)


def _is_held(turn: Turn, asker: Origin | None, context: RuntimeContext) -> bool:
    """Tell whether text would do what a tool does whose calls wait for a person."""
    answers = asker is not None and asker.address_type == "agent" and not turn.queued.finish
    tool = "send_response" if answers else "task_complete"
    return (
        tool in context.parts.breakpoint_tools
        or context.parts.approval_for(turn.agent, tool) is not None
    )


def _speak(turn: Turn, turn_result: TurnResult, text: str, context: RuntimeContext) -> None:
    """End a manual step: the words go where its driver said, and nowhere else."""
    step = turn.manual
    if step is None or not text:
        _repair(turn, turn_result, _SPEAK, context.settings.max_repairs)
        return
    tools = ToolContext(context, turn)
    to = [create_agent_address(name) for name in step.targets]
    if step.response_type == "broadcast":
        spoken = [tools.compose("broadcast", to, "", text)]
    else:
        answering = step.response_type == "response"
        spoken = [
            tools.compose(
                step.response_type,
                [address],
                "",
                text,
                tools.answers(address["address"]) if answering else None,
            )
            for address in to
        ]
    turn_result.mail.extend(spoken)
    turn_result.spoken = spoken[0]


def _asker(turn: Turn) -> Origin | None:
    """Return whom text answers: the sender, after a breakpoint whoever the agent worked for then.

    Mail of the system is answered by nobody's text.
    """
    resumed = turn.control is not None and turn.control.kind is ControlKind.RESUME
    return turn.origin if resumed or turn.envelope.sender["address_type"] != "system" else None


def _respond(
    turn: Turn, turn_result: TurnResult, text: str, sender: str, context: RuntimeContext
) -> None:
    tools = ToolContext(context, turn)
    try:
        target = tools.target(sender)
    except ToolError as error:
        _repair(turn, turn_result, f"{_USE_TOOLS} ({error})", 1)
        return
    ref = tools.answers(sender)
    # A resumed agent's mail is the system's; what was asked of it came in an earlier turn.
    own = turn.envelope.sender["address_type"] != "system"
    subject = turn.envelope.subject if own else _YOUR_REQUEST
    subject = subject if subject.lower().startswith("re: ") else f"Re: {subject}"
    turn_result.mail.append(
        tools.compose("response", [create_agent_address(target["address"])], subject, text, ref)
    )


def _repair(turn: Turn, turn_result: TurnResult, problem: str, limit: int) -> None:
    control = turn.control
    tried = control.attempt if control and control.kind is ControlKind.REPAIR else 0
    if tried >= limit:
        raise AgentError(f"agent '{turn.agent}' gave no usable reply, even when asked again")
    turn_result.reprompts += (Reprompt(Subject.TOOL_CALL_ERROR, problem, error=True),)


class TurnSink:
    """Passes pieces on until the turn is interrupted; after that, not one more."""

    def __init__(self, turn: Turn, mail_delivery: MailDelivery, console: StreamSink) -> None:
        self._turn = turn
        self._mail_delivery = mail_delivery
        self._console = console

    def text(self, delta: str) -> None:
        """Take a piece of the answer."""
        if not self._turn.abandoned:
            self._turn.partial.append(delta)
            self._mail_delivery.delta(self._turn, "text", delta)
            self._console.text(delta)

    def reasoning(self, delta: str) -> None:
        """Take a piece of the model's reasoning."""
        if not self._turn.abandoned:
            self._mail_delivery.delta(self._turn, "reasoning", delta)
            self._console.reasoning(delta)

    def restart(self) -> None:
        """Forget the pieces so far and tell the streams to do the same."""
        if not self._turn.abandoned:
            self._turn.partial.clear()
            self._mail_delivery.delta(self._turn, "restart", "")
            self._console.restart()

    def without_console(self) -> StreamSink:
        """Return the same sink, silent on the console."""
        return TurnSink(self._turn, self._mail_delivery, NullSink())


_FORCED = {"type": "function", "name": "task_complete"}
_BESIDE_THE_END = "not run: a call of the same reply completes the task"
_ONE_AT_A_TIME = "not run: call one such tool at a time; make this call again later"
_FAILED = "agent '%s' failed"
_LONG_RETRY = 30.0
_LONGEST_RETRY = 120.0
_MAX_DELAYS = 8
_STORE_PAUSE = 1.0
_BEFORE_END = 0.05
_SUSPECT_AFTER = 2
_suspects = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]()
_LARGE = 64 * 1024
"""Characters of a text that holds the loop up: others are served between two steps with it."""


@dataclass(slots=True, eq=False)
class TurnRunner:
    """Runs one turn at a time per lane; the scheduler sees to that.

    ``_latest`` is the newest message as its agent reads it, and that entry as JSON: the recipients
    of a broadcast come one after the other.
    """

    context: RuntimeContext
    tool_dispatcher: ToolDispatcher
    turn_end: TurnEnd
    _latest: tuple[Envelope | None, str, str] = (None, "", "")

    async def run(self, turn: Turn) -> None:
        """Run a turn to its commit.

        Mail that was in work at two crashes waits for other such mail of the process: then only
        what kills the process is in work at further ones.
        """
        if turn.queued.recovered and turn.queued.delivery.attempts >= _SUSPECT_AFTER:
            async with _suspects.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
                await self._run(turn)
        else:
            await self._run(turn)

    async def _run(self, turn: Turn) -> None:
        try:
            if await self.turn_end.unwanted(turn):
                return
            limited = turn.task.row.max_steps is not None
            if limited and await self.turn_end.stopped_by_limit(turn):
                return
            again = turn.queued.recovered or turn.queued.filed
            journal = await self._recover(turn) if again else {}
            if journal is None:  # its mail killed the process again and again
                failure = (
                    f"the server crashed {self.context.settings.max_attempts} times while agent "
                    f"'{turn.agent}' worked on this message"
                )
                await self._fail(turn, failure, dead=True)
                return
            if turn.queued.decided:
                await self._carry_out(turn, journal)
                return
            turn.counted = True
            await self._work(turn, journal)
        except StoreConflict:
            logger.info("the mail of agent '%s' was dropped during its turn", turn.agent)
            await self.turn_end.drop(turn)
        except StoreError as error:
            if self.context.status.draining or turn.abandoned:
                raise
            logger.warning("the store failed before agent '%s' was called: %s", turn.agent, error)
            # It goes on where it was; but a step whose driver leaves meanwhile must not begin.
            turn.queued.filed = turn.queued.filed or not turn.queued.of_step
            await self.turn_end.put_off(turn, _STORE_PAUSE)
        except Exception as error:  # noqa: BLE001 - a fault of the engine: nobody may wait for ever
            told = logged(logger, error, "the turn of agent '%s' broke", turn.agent)
            if turn.abandoned:
                return
            turn.counted = False
            await self._fail(turn, f"internal error: {told}")

    async def _work(self, turn: Turn, journal: Mapping[str, JournalRow]) -> None:
        turn_result = TurnResult(turn.task.now)
        enter_call(self._surroundings(turn))
        try:
            reply = await self._reply(turn, turn_result, journal)
            if reply is None:
                return
            await self._act(turn, turn_result, reply, journal)
        except (StoreError, asyncio.CancelledError):
            raise
        except ModelError as error:
            if not turn.abandoned and not await self._put_off(turn, error):
                await self._fail(turn, str(error))
            return
        except Exception as error:  # noqa: BLE001 - the engine's guard around agent functions
            if turn.abandoned:
                return
            await self._fail(turn, _reason(turn, error))
            return
        if turn_result.history.size > _LARGE:
            await asyncio.sleep(0)
        await self.turn_end.commit(turn, turn_result)

    async def _carry_out(self, turn: Turn, journal: Mapping[str, JournalRow]) -> None:
        """Run a call that somebody has accepted, or end a run because somebody ignored one."""
        turn.phase = Phase.ACTING  # no interrupt stops it
        if not turn.runs and runs_calls(turn.task, self.context):
            await self.turn_end.put_off(turn, _BEFORE_END)
            return
        turn_result = TurnResult(turn.task.now)
        if turn.runs and (accepted := accepted_call(turn)) is not None:
            enter_call(self._surroundings(turn))
            await self.tool_dispatcher.run(turn, turn_result, [accepted[1]], journal)
            turn_result.reprompts = ()  # the agent is called when all of its calls have results
        elif not turn.runs and turn.control is not None:
            turn_result.completes = turn.control.reason
        await self.turn_end.commit(turn, turn_result)

    async def _recover(self, turn: Turn) -> Mapping[str, JournalRow] | None:
        """Count the attempt and read the journal of mail that a dead process worked on.

        Returns None when the mail has seen too many processes die.
        """
        queued = turn.queued
        if queued.recovered and not queued.claimed:
            attempts = await count_attempt(self.context, turn)
            if attempts > self.context.settings.max_attempts:
                return None
        rows = {}
        if queued.filed:
            found = await self.context.store.journal(self.context.owner, turn.seq)
            rows = {row.key: row for row in found}
        restarted, queued.recovered = queued.recovered and REPLY_KEY not in rows, False
        if restarted and not turn.queued.decided:
            event = EventDraft(
                "turn_restarted", f"agent {turn.agent} starts over", {"caller": turn.agent}
            )
            row = event.row(turn.task.now())
            await log(self.context, turn.task, turn.seq, (row,))
        return rows

    async def _reply(
        self, turn: Turn, turn_result: TurnResult, journal: Mapping[str, JournalRow]
    ) -> Reply | None:
        """Return the agent's reply; None when it was not asked, or nobody wants its reply."""
        known = journal.get(REPLY_KEY)
        incoming = self._incoming(turn, turn_result)
        if len(turn.envelope.body) > _LARGE:
            await asyncio.sleep(0)
        if known is not None:
            turn.phase = Phase.ACTING
            reply = Reply.from_json(known.payload)
            turn_result.history.add_reply(reply)
            return reply
        lane, histories = turn.queued.lane, self.context.histories
        history = histories.at_hand(lane, fresh=turn.task.fresh)
        if history is not None:
            return await self._ask(turn, turn_result, history, incoming)
        async with histories.read(lane) as history:
            return await self._ask(turn, turn_result, history, incoming)

    async def _ask(
        self, turn: Turn, turn_result: TurnResult, history: History, incoming: list[Entry]
    ) -> Reply | None:
        """Return the agent's reply; None when there is a reason not to ask it, or nobody waits."""
        await check_claim(self.context, turn.task)
        messages = history.entries + incoming  # one copy; unpacking would make two of a long list
        # Nothing is awaited between this look at the account and the call.
        if (reason := refusal(turn, history.size, self.context)) is not None:
            await self.turn_end.refuse(turn, reason)
            return None
        began = time.perf_counter()
        try:
            reply = await self._call_agent(turn, messages)
        finally:  # an end that is being stored stops the turn, if it is stored
            if turn.task.order.closing and not turn.stopped:
                await turn.task.order.passed()
        duration = milliseconds(time.perf_counter() - began)
        if turn.abandoned:
            return None
        turn.phase = Phase.ACTING
        turn_result.events.extend(turn.reports)
        turn_result.history.add_reply(reply)
        turn_result.log_calls(turn.agent, reply, duration)
        return reply

    def _incoming(self, turn: Turn, turn_result: TurnResult) -> list[Entry]:
        """Return the new entries that the agent sees, and add them to its history."""
        kind = turn.control.kind if turn.control is not None else None
        if kind is ControlKind.RESUME:
            return []  # the results of its calls are what the agent sees
        if kind is ControlKind.STEP:
            entry = self.turn_end.mail_delivery.open_buffer(turn)
            turn_result.history.add(entry)
            return [entry]
        if self._latest[0] is not turn.envelope:
            entry = turn.envelope.to_entry()
            self._latest = turn.envelope, entry["content"], to_json(entry).decode()
        _, turn.shown, written = self._latest
        entry = {"role": "user", "content": turn.shown}
        turn_result.history.add_written(written, entry)
        return [entry]

    async def _call_agent(self, turn: Turn, messages: list[Entry]) -> Reply:
        function = self.context.agents[turn.agent].function
        try:
            output = await function(messages, _choice(turn))
        except asyncio.CancelledError:
            if turn.stopped:
                raise
            raise AgentError(f"agent '{turn.agent}' cancelled itself") from None
        except SystemExit as error:  # one agent does not end the program of all others
            told = logged(logger, error, _FAILED, turn.agent)
            raise AgentError(f"it tried to exit the program: {told}") from error
        except StoreError as error:  # not the engine's own
            raise AgentError(f"agent '{turn.agent}' failed: {error}") from error
        settings = self.context.settings
        try:
            reply = _read(turn.agent, output)
            return reply.storable(settings.max_reply_bytes, settings.max_argument_bytes)
        except ValueError as error:
            problem = f"agent '{turn.agent}' returned what JSON cannot hold: {error}"
            raise AgentError(problem) from error

    def _surroundings(self, turn: Turn) -> Callable[[], CallContext]:
        """Return what makes the context of a turn's calls, once, when somebody asks for it."""
        loop, began, offer = asyncio.get_running_loop(), time.perf_counter(), _offer_for(turn)

        @cache
        def make() -> CallContext:
            settings, step = self.context.settings, turn.manual
            priced = settings.task_cost_limit is not None
            console = ConsoleSink() if self.context.status.print_llm_streams else NullSink()
            meter = Meter(self.context, turn, priced, loop, began)
            return CallContext(
                task_id=turn.task.task_id,
                agent=turn.agent,
                step=turn.step,
                sink=TurnSink(turn, self.turn_end.mail_delivery, console),
                llm=step.llm if step else None,
                system=step.system if step else None,
                report=meter.report,
                waits=meter.wait,
                dynamic_ctx_ratio=(step.ctx_ratio if step else 0.0) or settings.dynamic_ctx_ratio,
                offered=offer.tools,
                instructions=offer.instructions,
                only_offered=_forced_by_offer(turn, offer) == "required",
                owner=self.context.owner,
                store=self.context.store,
                memories=settings.memories,
                models=self.context.agents[turn.agent].models,
                max_reply_bytes=settings.max_reply_bytes,
            )

        return make

    async def _act(
        self, turn: Turn, turn_result: TurnResult, reply: Reply, journal: Mapping[str, JournalRow]
    ) -> None:
        offer = _offer_for(turn)
        calls, dropped = _without_others(self.context.agents[turn.agent], reply.calls)
        paused: list[AgentToolCall] = []
        surplus: list[AgentToolCall] = []
        if offer.tools or self.context.parts.breakpoint_tools or self.context.parts.holds:
            asked, surplus = _without_surplus(offer, calls)
            paused, calls = split_held(turn, asked, offer.names, self.context)
        names = {call.tool_name for call in calls} - PASSIVE
        if REPLY_KEY not in journal and not names <= HANDLERS.keys():  # actions are slow
            turn_result.journal += (JournalRow(REPLY_KEY, "done", reply.to_json()),)
        turn_result.paused = tuple(paused)
        for call in dropped:
            turn_result.take(call, ToolOutcome(ok=False, details=_BESIDE_THE_END))
        if paused and self.context.parts.holds:
            turn_result.described = await describe(turn, paused, self.context)
        for call in surplus:
            turn_result.take(call, ToolOutcome(ok=False, details=_ONE_AT_A_TIME))
        await self.tool_dispatcher.run(turn, turn_result, calls, journal)
        if paused:
            return
        # A step ends with words, so an agent that only sent mail is asked for them.
        silent = turn.manual and not turn_result.reprompts and turn_result.completes is None
        if silent or not names:
            take_text(turn, turn_result, reply, self.context)

    async def _put_off(self, turn: Turn, error: ModelError) -> bool:
        """Free the slot when the provider asks for a long pause."""
        wait = error.retry_after or 0.0
        if wait <= _LONG_RETRY or turn.queued.delays >= _MAX_DELAYS:
            return False
        turn.queued.delays += 1
        known = {"agent": turn.agent, "task_id": turn.task.task_id, "reason": str(error)}
        logger.info("turn postponed at the provider's request", extra={**known, "seconds": wait})
        wait = min(wait, _LONGEST_RETRY)
        turn.reports.append(_retry(turn, error.model, error, turn.queued.delays, wait))
        await self.turn_end.put_off(turn, wait)
        return True

    async def _fail(self, turn: Turn, reason: str, *, dead: bool = False) -> None:
        """End a turn that failed; with ``dead`` its mail is set aside."""
        turn_result, reason = TurnResult(turn.task.now), storable(redact_foreign(reason))
        if self.context.tracer is not None:
            failed(get_current_span(), sys.exception())
        if dead:
            text = f"mail {turn.seq} of agent {turn.agent} is set aside: {reason}"
            told = {"caller": turn.agent, "number": turn.seq, "reason": reason}
            turn_result.log("mail_set_aside", text, **told)
        else:
            turn_result.events.extend(turn.reports)
        if turn.queued.decided:
            turn_result.give_up(accepted_call(turn), reason)
        else:
            turn_result.failure = reason
        await self.turn_end.commit(turn, turn_result, dead=reason if dead else None)


def _reason(turn: Turn, error: Exception) -> str:
    """Say why an agent failed: in our own words, or by the class of a foreign exception."""
    if isinstance(error, AgentError):
        return str(error)
    told = logged(logger, error, _FAILED, turn.agent)
    return str(error) if isinstance(error, MAILError) and str(error) else told


def _offer_for(turn: Turn) -> Offer:
    """Return what a turn's agent is offered by the caller of the run."""
    mine = turn.agent == turn.task.row.entrypoint and turn.manual is None
    return turn.task.offer if mine else NO_OFFER


def _forced_by_offer(turn: Turn, offer: Offer) -> ToolChoice | None:
    """Return the choice that the caller forces on the turn that takes its message or results."""
    control = turn.control
    if offer.force is None or (control is not None and control.kind is not ControlKind.RESUME):
        return None
    if control is None and turn.envelope.sender["address_type"] not in ("user", "admin"):
        return None
    if offer.force == "required":
        return "required"
    return {"type": "function", "name": offer.force}


def _choice(turn: Turn) -> ToolChoice:
    if turn.manual is not None:
        return "auto"
    if turn.queued.finish:
        return dict(_FORCED)
    return _forced_by_offer(turn, _offer_for(turn)) or "required"


def _without_others(
    agent: AgentCore, calls: list[AgentToolCall]
) -> tuple[list[AgentToolCall], list[AgentToolCall]]:
    """Return (the calls that count, calls that stand beside one that completes the task)."""
    own = agent.actions or {}
    for last in calls:
        action = own.get(last.tool_name)
        if action is None or not action.completes:
            continue
        allowed = agent.can_access_action_or_tool(last.tool_name)
        if allowed and problem_of_arguments(last.tool_name, last.tool_args) is None:
            kept = [call for call in calls if call is last or call.tool_name in PASSIVE]
            return kept, [
                call for call in calls if call is not last and call.tool_name not in PASSIVE
            ]
    return calls, []


def _without_surplus(
    offer: Offer, calls: Sequence[AgentToolCall]
) -> tuple[list[AgentToolCall], list[AgentToolCall]]:
    """Return (the calls that count, calls of offered tools beyond the one that is allowed)."""
    if offer.parallel:
        return list(calls), []
    kept: list[AgentToolCall] = []
    surplus: list[AgentToolCall] = []
    seen = False
    for call in calls:
        usable = problem_of_arguments(call.tool_name, call.tool_args) is None
        offered = call.tool_name in offer.names and usable
        (surplus if offered and seen else kept).append(call)
        seen = seen or offered
    return kept, surplus


def _read(agent: str, output: object) -> Reply:
    problem = f"agent '{agent}' must return (text or None, list of AgentToolCall)"
    if not isinstance(output, tuple) or len(output) != 2:
        raise AgentError(f"{problem}, got {type(output).__name__}")
    text, calls = output
    if text is not None and not isinstance(text, str):
        raise AgentError(f"{problem}; its text is a {type(text).__name__}")
    for call in calls if isinstance(calls, list) else [None]:
        if not isinstance(call, AgentToolCall):
            raise AgentError(f"{problem}; its second item is not such a list")
    return Reply(None if text is None else storable(text), calls)
