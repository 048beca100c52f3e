"""The turn transaction: take one letter, call the agent, run its calls, commit everything at once.

In order: the step limit, the history and the incoming mail, the budget, the agent's reply (or the
journaled one, after a crash), a journal commit when actions or breakpoints follow, the calls, and
one final commit with the consumed letter, the history, the outgoing mail, the events and the task's
state. Streams, waiters and the scheduler hear of it after the commit.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from mail.core.agents import ToolChoice
from mail.core.call_context import CallContext, ConsoleSink, NullSink, StreamSink, enter_call
from mail.core.runtime.breakpoints import split_breakpoints
from mail.core.runtime.client_tools import (
    ONE_AT_A_TIME,
    forced_by_offer,
    offer_for,
    without_surplus,
)
from mail.core.runtime.context import Parts
from mail.core.runtime.delivery import PostOffice
from mail.core.runtime.handlers import HANDLERS
from mail.core.runtime.histories import Entry, HistoryView
from mail.core.runtime.mailbox import LaneKey
from mail.core.runtime.text_replies import take_text
from mail.core.runtime.tool_dispatch import BUILTIN_TOOLS, TEXT_TOOL, Dispatcher, log_tool_calls
from mail.core.runtime.turn import ControlKind, EventDraft, Outcome, Phase, Turn, storable
from mail.core.runtime.turn_commit import Conclusions
from mail.core.runtime.turn_result import REPLY_KEY, Draft, Reply
from mail.core.runtime.usage_accounting import Meter, log_usage, refusal
from mail.core.tools.call import AgentToolCall
from mail.db.base import JournalRow, TurnCommit
from mail.errors import AgentError, ModelError, StoreConflict, StoreError

__all__ = ["TurnRunner", "TurnSink"]


class TurnSink:
    """Passes pieces on until the turn is interrupted; after that, not one more."""

    def __init__(self, turn: Turn, post_office: PostOffice, console: StreamSink) -> None:
        self._turn = turn
        self._post_office = post_office
        self._console = console

    def text(self, delta: str) -> None:
        """Take a piece of the answer."""
        if not self._turn.abandoned:
            self._turn.partial.append(delta)
            self._post_office.delta(self._turn, "text", delta)
            self._console.text(delta)

    def reasoning(self, delta: str) -> None:
        """Take a piece of the model's reasoning."""
        if not self._turn.abandoned:
            self._post_office.delta(self._turn, "reasoning", delta)
            self._console.reasoning(delta)

    def restart(self) -> None:
        """Forget the pieces so far and tell the streams to do the same."""
        if not self._turn.abandoned:
            self._turn.partial.clear()
            self._post_office.delta(self._turn, "restart", "")
            self._console.restart()

    def without_console(self) -> StreamSink:
        """Return the same sink, silent on the console."""
        return TurnSink(self._turn, self._post_office, NullSink())


logger = logging.getLogger(__name__)

_FORCED = {"type": "function", "name": "task_complete"}
_LONG_RETRY = 30.0
_LONGEST_RETRY = 120.0
_MAX_DELAYS = 8
_STORE_PAUSE = 1.0


@dataclass(slots=True, eq=False)
class TurnRunner:
    """Runs one turn at a time per lane; the scheduler sees to that."""

    parts: Parts
    dispatcher: Dispatcher
    conclusions: Conclusions

    async def run(self, turn: Turn) -> None:
        """Run a turn to its commit."""
        try:
            if turn.manual is not None and await self.conclusions.forsaken(turn):
                return
            if await self.conclusions.stopped_by_limit(turn):
                return
            journal = await self._recover(turn)
            if journal is None:
                await self.conclusions.bury(turn)
                return
            turn.counted = True
            await self._work(turn, journal)
        except StoreConflict:
            logger.info("the mail of agent '%s' was dropped while it worked on it", turn.agent)
            await self.conclusions.drop(turn)
        except StoreError as error:
            if self.parts.draining or turn.abandoned:
                raise
            logger.warning("the store failed before agent '%s' was called: %s", turn.agent, error)
            # It goes on where it was; but a step whose driver leaves meanwhile must not begin.
            turn.letter.filed = turn.letter.filed or not turn.letter.of_step
            await self.conclusions.put_off(turn, _STORE_PAUSE)
        except Exception as error:  # a fault of the engine: nobody may wait for ever because of it
            logger.exception("the turn of agent '%s' broke", turn.agent)
            if turn.abandoned:
                return
            turn.counted = False
            await self._failed(turn, f"internal error: {type(error).__name__}")

    async def _work(self, turn: Turn, journal: Mapping[str, JournalRow]) -> None:
        draft = Draft(self.parts.clock.now())
        try:
            reply = await self._reply(turn, draft, journal)
            if reply is None:
                return
            await self._act(turn, draft, reply, journal)
            draft.seal()
        except (StoreError, asyncio.CancelledError):
            raise
        except ModelError as error:
            if not turn.abandoned and not await self._put_off(turn, error):
                await self._failed(turn, str(error))
            return
        except Exception as error:  # the engine's guard around agent functions
            if turn.abandoned:
                return
            if not isinstance(error, AgentError):
                logger.exception("agent '%s' failed", turn.agent)
            await self._failed(turn, str(error) or type(error).__name__)
            return
        await self.conclusions.commit(turn, draft)

    async def _recover(self, turn: Turn) -> Mapping[str, JournalRow] | None:
        """Count the attempt and read the journal of mail that a dead process worked on.

        Returns None when the mail has seen too many processes die.
        """
        letter = turn.letter
        if letter.recovered and not letter.claimed:
            attempts = await self.parts.store.claim(self.parts.owner, turn.seq)
            letter.claimed = True
            if attempts > self.parts.settings.max_attempts:
                return None
        rows = {}
        if letter.filed:
            found = await self.parts.store.journal(self.parts.owner, turn.seq)
            rows = {row.key: row for row in found}
        restarted, letter.recovered = letter.recovered and REPLY_KEY not in rows, False
        if restarted:
            event = EventDraft(
                "turn_restarted", f"agent {turn.agent} starts over", {"caller": turn.agent}
            )
            await self.conclusions.post_office.log(turn.task, turn.seq, event)
        return rows

    async def _reply(
        self, turn: Turn, draft: Draft, journal: Mapping[str, JournalRow]
    ) -> Reply | None:
        """Return the agent's reply; None when it was not asked, or nobody wants its reply."""
        known = journal.get(REPLY_KEY)
        incoming = self._incoming(turn)
        draft.entries.extend(incoming)
        if known is not None:
            turn.phase = Phase.ACTING
            reply = Reply.from_json(known.payload)
        else:
            key = LaneKey(turn.task.task_id, turn.agent)
            view = await self.parts.histories.view(key, incoming, fresh=turn.task.fresh)
            # Nothing is awaited between this look at the account and the call.
            reason = refusal(turn.task, turn.agent, self.parts.settings)
            if reason is not None:
                await self.conclusions.refuse(turn, reason)
                return None
            reply = await self._call_agent(turn, view)
            if turn.abandoned:
                return None
            turn.phase = Phase.ACTING
            log_tool_calls(draft, turn.agent, reply.calls)
            log_usage(draft, turn)
        draft.entries.extend(_assistant_entries(reply))
        return reply

    def _incoming(self, turn: Turn) -> list[Entry]:
        control = turn.control
        if control is not None and control.kind is ControlKind.RESUME:
            return []  # the results of its calls are what the agent sees
        if control is not None and control.kind is ControlKind.STEP:
            return [self.conclusions.post_office.open_buffer(turn)]
        return [turn.envelope.to_entry()]

    async def _call_agent(self, turn: Turn, view: HistoryView) -> Reply:
        enter_call(self._surroundings(turn))
        function = self.parts.agents[turn.agent].function
        try:
            output = await function(view, _choice(turn))
        except asyncio.CancelledError:
            handle = turn.handle
            if turn.abandoned or handle is None or handle.cancelling():
                raise
            raise AgentError(f"agent '{turn.agent}' was cancelled from within") from None
        except SystemExit as error:  # one agent does not end the program of all others
            problem = f"it tried to end the program (SystemExit: {error.code})"
            raise RuntimeError(problem) from error
        except StoreError as error:  # not the engine's own
            raise AgentError(f"agent '{turn.agent}' failed: {error}") from error
        return _checked(turn.agent, output)

    def _surroundings(self, turn: Turn) -> CallContext:
        settings, step, offer = self.parts.settings, turn.manual, offer_for(turn)
        console = ConsoleSink() if self.parts.print_llm_streams else NullSink()
        return CallContext(
            task_id=turn.task.task_id,
            agent=turn.agent,
            step=turn.step,
            sink=TurnSink(turn, self.conclusions.post_office, console),
            llm=step.llm if step else None,
            system=step.system if step else None,
            report=Meter(turn, priced=settings.task_cost_limit is not None).report,
            dynamic_ctx_ratio=(step.ctx_ratio if step else 0.0) or settings.dynamic_ctx_ratio,
            offered=offer.tools,
            instructions=offer.instructions,
            only_offered=forced_by_offer(turn) == "required",
        )

    async def _act(
        self, turn: Turn, draft: Draft, reply: Reply, journal: Mapping[str, JournalRow]
    ) -> None:
        agent = self.parts.agents[turn.agent]
        asked, surplus = without_surplus(turn, reply.calls)
        paused, calls = split_breakpoints(agent, asked, self.parts, offer_for(turn).names)
        slow = any(call.tool_name not in HANDLERS for call in calls if not _passive(call))
        if REPLY_KEY not in journal and (slow or paused):
            draft.journal.append(JournalRow(REPLY_KEY, "done", reply.to_json()))
        draft.paused.extend(paused)
        for call in surplus:
            draft.take(call, Outcome(ok=False, details=ONE_AT_A_TIME))
        await self.dispatcher.run(turn, draft, calls, journal)
        if paused:
            return
        # A step ends with words, so an agent that only sent mail is asked for them.
        silent = turn.manual and not draft.reprompts and draft.completes is None
        if silent or all(_passive(call) for call in calls):
            take_text(turn, draft, reply, self.parts)

    async def _put_off(self, turn: Turn, error: ModelError) -> bool:
        """Free the slot when the provider asks for a long pause (ruling 41)."""
        wait = error.retry_after or 0.0
        if wait <= _LONG_RETRY or turn.letter.delays >= _MAX_DELAYS:
            return False
        turn.letter.delays += 1
        known = {"agent": turn.agent, "task_id": turn.task.task_id, "reason": str(error)}
        logger.info("turn put off, as its provider asks", extra={**known, "seconds": wait})
        await self.conclusions.put_off(turn, min(wait, _LONGEST_RETRY))
        return True

    async def _failed(self, turn: Turn, reason: str) -> None:
        draft = Draft(self.parts.clock.now())
        log_usage(draft, turn)
        draft.failure = storable(reason)
        await self.conclusions.commit(turn, draft)

    async def flush(self, turn: Turn, draft: Draft) -> None:
        """Commit a draft's journal rows and events now, and publish the events."""
        events, journal = tuple(draft.events), tuple(draft.journal)
        draft.events.clear()
        draft.journal.clear()
        turn.reports.clear()
        commit = TurnCommit(
            owner=self.parts.owner,
            task=turn.task.row,
            seq=turn.seq,
            done=False,
            events=events,
            journal=journal,
        )
        receipt = await self.parts.commit(commit)
        self.parts.events.publish(turn.task.task_id, receipt.first_event, events)


def _choice(turn: Turn) -> ToolChoice:
    if turn.manual is not None:
        return "auto"
    forced = turn.control is not None and turn.control.kind is ControlKind.FINISH
    return dict(_FORCED) if forced else forced_by_offer(turn) or "required"


def _passive(call: AgentToolCall) -> bool:
    return call.tool_name == TEXT_TOOL or call.tool_name in BUILTIN_TOOLS


def _assistant_entries(reply: Reply) -> list[Entry]:
    if not reply.calls:
        return [{"role": "assistant", "content": reply.text}] if reply.text else []
    first = reply.calls[0]
    return [first.completion] if first.completion else list(first.responses)


def _checked(agent: str, output: object) -> Reply:
    problem = f"agent '{agent}' must return (text or None, list of AgentToolCall)"
    if not isinstance(output, tuple) or len(output) != 2:
        raise AgentError(f"{problem}, got {type(output).__name__}")
    text, calls = output
    if text is not None and not isinstance(text, str):
        raise AgentError(f"{problem}; its text is a {type(text).__name__}")
    if not isinstance(calls, list) or not all(isinstance(c, AgentToolCall) for c in calls):
        raise AgentError(f"{problem}; its calls are not")
    return Reply(None if text is None else storable(text), calls)
