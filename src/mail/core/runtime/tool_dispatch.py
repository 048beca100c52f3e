"""Running a turn's tool calls, in order, through the table of handlers.

The one broad ``except`` of the engine around foreign decisions is here: whatever goes wrong with a
call becomes a tool result that the agent can act on, and every call gets exactly one result.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from mail import traces
from mail.core.actions import ActionCore
from mail.core.call_context import current_call, enter_call
from mail.core.compose import Subject
from mail.core.runtime.active_tasks import Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.handlers import HANDLERS, ToolContext
from mail.core.runtime.policy import check_tool
from mail.core.runtime.transaction import TaskChange, check_claim
from mail.core.runtime.turn_result import (
    EventDraft,
    Reprompt,
    ToolOutcome,
    TurnResult,
    milliseconds,
    storable,
)
from mail.core.suggest import did_you_mean
from mail.core.tools.call import AgentToolCall
from mail.core.tools.catalogue import CATALOGUE, PASSIVE, TEXT_TOOL, check_usable
from mail.db.commit import TurnCommit
from mail.db.records import JournalRow
from mail.errors import StoreError, ToolError
from mail.redaction import logged

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

logger = logging.getLogger(__name__)

_GLIMPSE = 200
_SEE_RESULT = "The call was not carried out. Its result says why."
_AFTER_END = "not run: the task was completed by an earlier call"
_UNKNOWN = (
    "the server stopped while this action was running, so its outcome is unknown; check before you "
    "run it again"
)
_SHOWN_PROBLEMS = 3
_MANY_VALUES = 500
"""Values of arguments that are checked on the event loop, in some milliseconds."""
_TEXT_OF_A_VALUE = 16
_SEE_FAILURE = "The action failed. The result of its call says why."


@dataclass(slots=True, eq=False)
class ToolDispatcher:
    """Carries out the calls of a turn and gathers their outcomes in its draft."""

    context: RuntimeContext

    async def run(
        self,
        turn: Turn,
        turn_result: TurnResult,
        calls: list[AgentToolCall],
        journal: Mapping[str, JournalRow],
    ) -> None:
        """Run the calls; the draft has their results, mail and events afterwards."""
        tools = ToolContext(self.context, turn, pausing=bool(turn_result.paused or turn.runs))
        for index, call in enumerate(calls):
            if call.tool_name in PASSIVE:
                if call.tool_name != TEXT_TOOL:
                    self._note_builtin(turn, turn_result, call)
                continue
            if turn_result.completes is not None:
                turn_result.take(call, ToolOutcome(ok=False, details=_AFTER_END))
                continue
            tools.later = calls[index + 1 :]
            tools.produced = bool(turn_result.mail or turn_result.reprompts)
            turn_result.take(call, await self._one(tools, turn_result, call, index, journal))

    async def _one(
        self,
        tools: ToolContext,
        turn_result: TurnResult,
        call: AgentToolCall,
        index: int,
        journal: Mapping[str, JournalRow],
    ) -> ToolOutcome:
        try:
            check_usable(call.tool_name, call.tool_args)
            handler = HANDLERS.get(call.tool_name)
            if handler is None:
                key = f"{index}:{call.tool_call_id}"
                return await self._run_action(tools.turn, turn_result, call, key, journal.get(key))
            agent = self.context.agents[tools.turn.agent]
            check_tool(call.tool_name, agent, self.context.parts.exclude_tools)
            outcome = await handler(tools, call)
            return outcome._replace(untrusted=CATALOGUE[call.tool_name].recalls)
        except ToolError as error:
            return _refused(call, str(error))
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - the guard that the module's docstring tells of
            text = "tool '%s' of agent '%s' failed"
            return _refused(call, logged(logger, error, text, call.tool_name, tools.name))

    def _note_builtin(self, turn: Turn, turn_result: TurnResult, call: AgentToolCall) -> None:
        tool = call.tool_name.removesuffix("_call")
        turn_result.log(
            "builtin_tool_call",
            f"agent {turn.agent} used {tool}{_glimpse(call.tool_args)}",
            caller=turn.agent,
            tool_type=call.tool_name,
            tool_args=call.tool_args,
            tool_call_id=call.tool_call_id,
        )

    # --- actions ------------------------------------------------------------------------------

    async def _run_action(
        self,
        turn: Turn,
        turn_result: TurnResult,
        call: AgentToolCall,
        key: str,
        known: JournalRow | None,
    ) -> ToolOutcome:
        """Run a call's action, or take its journaled result: once unless it is idempotent.

        ``known`` is what the journal holds of the call by its ``key``, when the turn is run again.
        """
        action = self._find(turn, call)
        if known is not None and known.state == "done":
            status, content = from_json(known.payload)
            # Its event was committed together with the journaled result.
            told = _outcome(turn.agent, call, status, content)._replace(events=())
            return _of_action(turn, action, told)
        if known is not None and not action.idempotent:
            return self._unknown(turn, call)
        checked = (call.tool_name, call.tool_args, action.parameters)
        if is_long(call.tool_args):
            await asyncio.to_thread(check_action_arguments, *checked)
        else:
            check_action_arguments(*checked)
        if known is None:
            self._announce(turn, turn_result, call)
        if not action.idempotent:
            turn_result.journal_row(key, "started", {})
        if turn_result.journal:
            await self._flush(turn, turn_result)
        await check_claim(self.context, turn.task)
        began = time.perf_counter()
        if action.idempotent:
            async with self._notes(turn, turn_result, key, known):
                status, content = await self._execute(action, call)
        else:
            status, content = await self._execute(action, call)
        duration = milliseconds(time.perf_counter() - began)
        turn_result.journal_row(key, "done", [status, content])
        told = _outcome(turn.agent, call, status, content, duration_ms=duration)
        return _of_action(turn, action, told)

    @asynccontextmanager
    async def _notes(
        self, turn: Turn, turn_result: TurnResult, key: str, known: JournalRow | None
    ) -> AsyncIterator[None]:
        """Let the action that runs meanwhile write down how far it is, and read it after a crash.

        Raises:
            StoreError: what it wrote could not be stored. The turn is run again then.
        """
        failed: list[StoreError] = []
        running = True

        async def note(text: str) -> None:
            if not running:  # it was given up, and a thread of it goes on
                raise ToolError("the call has ended")
            turn_result.journal_row(key, "started", {"note": text})
            try:
                await self._flush(turn, turn_result)
            except StoreError as error:
                failed.append(error)
                raise

        before = current_call()
        noted = str(from_json(known.payload).get("note", "")) if known else ""
        enter_call(replace(before, noted=noted, note=note))
        try:
            yield
        finally:
            running = False
            enter_call(before)
        if failed:
            raise failed[0]

    async def _flush(self, turn: Turn, turn_result: TurnResult) -> None:
        """Commit the journal rows and events so far, and publish the events."""
        events, journal = tuple(turn_result.events), turn_result.journal
        turn_result.events.clear()
        turn_result.journal = ()
        turn.reports.clear()
        commit = TurnCommit(self.context.owner, turn.task.row, seq=turn.seq, done=False)
        commit.events, commit.journal = events, journal
        async with TaskChange(self.context, turn.task, commit=commit):
            pass

    def _find(self, turn: Turn, call: AgentToolCall) -> ActionCore:
        name = call.tool_name
        agent = self.context.agents[turn.agent]
        own = agent.actions or {}
        action = self.context.parts.actions.get(name) or own.get(name)
        if action is None:
            raise ToolError(f"there is no tool named '{name}'.{did_you_mean(name, own)}")
        if name in self.context.parts.exclude_tools or not agent.can_access_action_or_tool(name):
            raise ToolError(f"the action '{name}' is not available to you")
        return action

    def _announce(self, turn: Turn, turn_result: TurnResult, call: AgentToolCall) -> None:
        arguments = json.dumps(call.tool_args, ensure_ascii=False)
        turn_result.log(
            "action_call",
            f"agent {turn.agent} executing action tool: {call.tool_name} with args: {arguments}",
            caller=turn.agent,
            tool_name=call.tool_name,
            tool_call_id=call.tool_call_id,
        )

    async def _execute(self, action: ActionCore, call: AgentToolCall) -> tuple[str, str]:
        with traces.tool_span(call.tool_name, call.tool_call_id) as span:
            status, text = await self._executed(action, call)
            if status != "success":
                traces.failed(span, "tool_error")
            if traces.wants_content(span):
                used, came = call.tool_args, text
                traces.add_content(span, tool__call__arguments=used, tool__call__result=came)
        return status, text

    async def _executed(self, action: ActionCore, call: AgentToolCall) -> tuple[str, str]:
        override = self.context.status.action_override
        try:
            status, result = await action.execute(call, self.context.parts.actions, override)
        except asyncio.CancelledError:
            turn = asyncio.current_task()
            if turn is None or turn.cancelling():
                raise
            return "error", f"the action '{call.tool_name}' cancelled itself"
        content: Any = result.get("content", result)
        text = content if isinstance(content, str) else json.dumps(content, default=str)
        return status, self._cut(storable(text))

    def _cut(self, text: str) -> str:
        """Return a result as it is kept and shown: not longer than a limit."""
        most = self.context.settings.max_result_bytes
        if most is None or len(text) <= most // 4:  # UTF-8 takes four bytes for a sign at most
            return text
        data = text.encode()
        if len(data) <= most:
            return text
        note = f"\n[cut here: the result has {len(data):,} bytes, and max_result_bytes is {most:,}]"
        return data[:most].decode(errors="ignore") + note

    def _unknown(self, turn: Turn, call: AgentToolCall) -> ToolOutcome:
        logger.warning("outcome of '%s' of agent '%s' is unknown", call.tool_name, turn.agent)
        prompt = Reprompt(
            Subject.ACTION_OUTCOME_UNKNOWN, f"Error: {call.tool_name}\n{_UNKNOWN}", error=True
        )
        [event] = _outcome(turn.agent, call, "unknown", _UNKNOWN).events
        return ToolOutcome(ok=False, details=_UNKNOWN, events=(event,), reprompt=prompt)


def _glimpse(arguments: Mapping[str, Any]) -> str:
    """Return what a provider's tool was asked, for people: the query, or how the code begins."""
    queries = arguments.get("queries")
    query = arguments.get("query") or (
        ", ".join(map(str, queries)) if isinstance(queries, list) else queries
    )
    if query:
        return f" with query: {str(query)[:_GLIMPSE]}"
    code = str(arguments.get("code") or "").strip()
    return f" with code: {code.splitlines()[0][:_GLIMPSE]}" if code else ""


def _refused(call: AgentToolCall, problem: str) -> ToolOutcome:
    what = f"Error: {call.tool_name}\n"
    # The system does not repeat in its own name what the schema of a tool from elsewhere says.
    spec = CATALOGUE.get(call.tool_name)
    foreign = spec is None or spec.recalls
    told = _SEE_RESULT if foreign else problem
    prompt = Reprompt(Subject.TOOL_CALL_ERROR, what + told, error=True, reason=what + problem)
    return ToolOutcome(ok=False, details=problem, untrusted=foreign, reprompt=prompt)


def _outcome(
    agent: str, call: AgentToolCall, status: str, content: str, **measured: float
) -> ToolOutcome:
    extra: dict[str, Any] = {
        "caller": agent,
        "tool_name": call.tool_name,
        "tool_call_id": call.tool_call_id,
        "result": content,
        **measured,
    }
    if status == "success":
        event = EventDraft(
            "action_complete", f"action complete (caller = {agent}):\n{content}", extra
        )
        prompt = Reprompt(Subject.ACTION_COMPLETE, "Action completed successfully")
        return ToolOutcome(details=content, events=(event,), reprompt=prompt)
    event = EventDraft(
        "action_error",
        f"action error (caller = {agent}, tool = {call.tool_name}):\n{content}",
        extra,
    )
    # The system does not repeat in its own name what a page or a file may have said.
    prompt = Reprompt(Subject.ACTION_ERROR, f"Error: {call.tool_name}\n{_SEE_FAILURE}", error=False)
    return ToolOutcome(ok=False, details=content, events=(event,), reprompt=prompt)


def _of_action(turn: Turn, action: ActionCore, outcome: ToolOutcome) -> ToolOutcome:
    """Return an outcome as the action declares it.

    An action that completes tasks ends this one, unless it failed or the task has ended. Text from
    outside is untrusted; why an action failed may always be such text.
    """
    outcome = outcome._replace(untrusted=action.untrusted or not outcome.ok)
    if action.completes and outcome.ok and turn.task.row.state.is_open:
        return outcome._replace(completes=outcome.details, reprompt=None)
    return outcome


def is_long(arguments: Mapping[str, Any] | None) -> bool:
    """Tell whether it takes long to check arguments against a schema.

    They have many values, or a long text, which may stand for many.
    """
    waiting: list[Any] = [arguments]
    values = 0
    while waiting and values <= _MANY_VALUES:
        value = waiting.pop()
        if isinstance(value, Mapping):
            value = list(value.values())
        if isinstance(value, list):
            values += len(value)
            waiting += value[:_MANY_VALUES]
        elif isinstance(value, str):
            values += len(value) // _TEXT_OF_A_VALUE
    return values > _MANY_VALUES


def check_action_arguments(name: str, arguments: dict[str, Any], schema: dict[str, Any]) -> None:
    """Check an action's arguments; null for a property that is not required counts as absent.

    Strict tool formats make every property required, so models send null for what they leave out.
    The null is removed from ``arguments`` when the schema does not accept it.

    Raises:
        ToolError: they do not fit; the text names the argument and the problem.
    """
    check_usable(name, arguments)
    if not schema:
        return
    from referencing.exceptions import Unresolvable

    try:
        _drop_nulls(arguments, schema)
        found = _validator(json.dumps(schema)).iter_errors(arguments)
        problems = list(islice(found, _SHOWN_PROBLEMS))  # there may be one for each value
    except Unresolvable as error:
        raise ToolError(
            f"'{name}' cannot be called: its schema refers to '{error.ref}', which is not part of "
            "it; use another tool"
        ) from None
    if problems:
        text = "; ".join(
            f"{'.'.join(map(str, problem.absolute_path)) or 'arguments'}: {problem.message[:200]}"
            for problem in problems
        )
        raise ToolError(f"invalid arguments for '{name}': {text}")


def _drop_nulls(arguments: dict[str, Any], schema: dict[str, Any]) -> None:
    properties = schema.get("properties")
    required = schema.get("required", ())
    if not isinstance(properties, dict):
        return
    for name in [name for name, value in arguments.items() if value is None]:
        shape = properties.get(name)
        if name in required or not isinstance(shape, dict):
            continue
        if not fits(None, shape, schema):
            del arguments[name]


def fits(value: Any, shape: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    """Tell whether a value fits the shape of a property of a schema."""
    return _validator(json.dumps({**shape, "$defs": schema.get("$defs", {})})).is_valid(value)


@lru_cache(maxsize=512)
def _validator(schema: str) -> "Validator":
    from jsonschema import validators  # a heavy import, paid by the first action call
    from jsonschema_specifications import REGISTRY

    shape = json.loads(schema)
    make = validators.validator_for(shape, default=validators.Draft202012Validator)
    # With a registry of its own the library does not fetch what a schema refers to.
    return make(shape, registry=REGISTRY)
