"""Running one action within a turn: journaled before and after, at most once unless idempotent."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from mail.core.actions import ActionCore
from mail.core.compose import Subject
from mail.core.runtime.context import Parts
from mail.core.runtime.turn import EventDraft, Outcome, Reprompt, Turn, storable
from mail.core.runtime.turn_result import Draft
from mail.core.suggest import did_you_mean
from mail.core.tools.arguments import check_action_arguments
from mail.core.tools.call import AgentToolCall
from mail.db.base import JournalRow
from mail.errors import ToolError

__all__ = ["ActionRunner", "Flush"]

logger = logging.getLogger(__name__)

Flush = Callable[[Turn, Draft], Awaitable[None]]
"""Commits a draft's journal rows and events now."""

_UNKNOWN = (
    "the server stopped while this action was running, so its outcome is unknown; check before you "
    "run it again"
)


@dataclass(slots=True, eq=False)
class ActionRunner:
    """Finds, checks and runs actions."""

    parts: Parts
    flush: Flush

    async def run(
        self, turn: Turn, draft: Draft, call: AgentToolCall, key: str, known: JournalRow | None
    ) -> Outcome:
        """Run a call's action, or take its journaled result.

        Args:
            key: The call's key in the turn's journal.
            known: What the journal holds of the call when the turn is run again.

        Raises:
            ToolError: no such action, not this agent's, or arguments that do not fit its schema.
        """
        action = self._find(turn, call)
        if known is not None and known.state == "done":
            status, content = from_json(known.payload)
            # Its event was committed together with the journaled result.
            return _outcome(turn.agent, call, status, content)._replace(events=())
        if known is not None and not action.idempotent:
            return self._unknown(turn, call)
        check_action_arguments(call.tool_name, call.tool_args, action.parameters)
        if known is None:
            self._announce(turn, draft, call)
        if not action.idempotent:
            draft.journal_row(key, "started", {})
        if draft.journal:
            await self.flush(turn, draft)
        status, content = await self._execute(action, call)
        draft.journal_row(key, "done", [status, content])
        return _outcome(turn.agent, call, status, content)

    def _find(self, turn: Turn, call: AgentToolCall) -> ActionCore:
        name = call.tool_name
        agent = self.parts.agents[turn.agent]
        own = agent.actions or {}
        action = self.parts.actions.get(name) or own.get(name)
        if action is None:
            raise ToolError(f"there is no tool named '{name}'.{did_you_mean(name, own)}")
        if not agent.can_access_action(name):
            raise ToolError(f"the action '{name}' is not available to you")
        return action

    def _announce(self, turn: Turn, draft: Draft, call: AgentToolCall) -> None:
        arguments = json.dumps(call.tool_args, ensure_ascii=False)
        draft.log(
            "action_call",
            f"agent {turn.agent} executing action tool: {call.tool_name} with args: {arguments}",
            caller=turn.agent,
            tool_name=call.tool_name,
            tool_call_id=call.tool_call_id,
        )

    async def _execute(self, action: ActionCore, call: AgentToolCall) -> tuple[str, str]:
        override = self.parts.action_override
        try:
            status, result = await action.execute(call, self.parts.actions, override)
        except asyncio.CancelledError:
            turn = asyncio.current_task()
            if turn is None or turn.cancelling():
                raise
            return "error", f"the action '{call.tool_name}' was cancelled from within"
        content: Any = result.get("content", result)
        text = content if isinstance(content, str) else json.dumps(content, default=str)
        return status, storable(text)

    def _unknown(self, turn: Turn, call: AgentToolCall) -> Outcome:
        logger.warning("outcome of '%s' of agent '%s' is unknown", call.tool_name, turn.agent)
        prompt = Reprompt(
            Subject.ACTION_OUTCOME_UNKNOWN, f"Error: {call.tool_name}\n{_UNKNOWN}", error=True
        )
        [event] = _outcome(turn.agent, call, "unknown", _UNKNOWN).events
        return Outcome(ok=False, details=_UNKNOWN, events=(event,), reprompt=prompt)


def _outcome(agent: str, call: AgentToolCall, status: str, content: str) -> Outcome:
    extra = {
        "caller": agent,
        "tool_name": call.tool_name,
        "tool_call_id": call.tool_call_id,
        "result": content,
    }
    if status == "success":
        event = EventDraft(
            "action_complete", f"action complete (caller = {agent}):\n{content}", extra
        )
        prompt = Reprompt(Subject.ACTION_COMPLETE, "Action completed successfully")
        return Outcome(details=content, events=(event,), reprompt=prompt)
    event = EventDraft(
        "action_error",
        f"action error (caller = {agent}, tool = {call.tool_name}):\n{content}",
        extra,
    )
    prompt = Reprompt(Subject.ACTION_ERROR, f"Error: {call.tool_name}\n{content}", error=False)
    return Outcome(ok=False, details=content, events=(event,), reprompt=prompt)
