"""Running a turn's tool calls, in order, through the table of handlers.

The one broad ``except`` of the engine around foreign decisions is here: whatever goes wrong with a
call becomes a tool result that the agent can act on, and every call gets exactly one result.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mail.core.compose import Subject
from mail.core.runtime.action_runner import ActionRunner
from mail.core.runtime.active_tasks import Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.handlers import HANDLERS, ToolContext
from mail.core.runtime.policy import check_tool
from mail.core.runtime.turn_result import Reprompt, ToolOutcome, TurnResult
from mail.core.tools.call import AgentToolCall
from mail.core.tools.catalogue import CATALOGUE, PASSIVE, TEXT_TOOL, check_usable
from mail.db.records import JournalRow
from mail.errors import StoreError, ToolError
from mail.redaction import logged

logger = logging.getLogger(__name__)

_GLIMPSE = 200
_SEE_RESULT = "The call was not carried out. Its result says why."
_AFTER_END = "not run: the task was completed by an earlier call"


@dataclass(slots=True, eq=False)
class ToolDispatcher:
    """Carries out the calls of a turn and gathers their outcomes in its draft."""

    context: RuntimeContext
    actions: ActionRunner

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
                return await self.actions.run(tools.turn, turn_result, call, key, journal.get(key))
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
