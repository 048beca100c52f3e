"""An action (an agent's own tool) and its safe execution."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mail.core.approvals import Approval
from mail.core.call_context import current_call
from mail.core.tools.call import AgentToolCall
from mail.errors import ToolError
from mail.redaction import logged, redact_foreign

logger = logging.getLogger(__name__)

_ERROR = "Error: "
_LONGEST = 16_000
"""Characters of an error that an action words itself; of an exception's text fewer are kept."""

ActionFunction = Callable[[dict[str, Any]], Awaitable[str]]
"""Takes the call's arguments, returns the text shown to the agent."""

ActionOverrideFunction = Callable[[AgentToolCall], Awaitable[dict[str, Any] | str]]
"""Answers a call in place of the action itself."""

ActionResult = tuple[str, dict[str, Any]]
"""``("success" | "error", {"content": text})``."""


class ActionFailure(str):
    """The text of a failure that an action returns in place of raising; begins with ``Error:``.

    Whoever calls the action by hand has a text; an agent gets an error, as if it had been raised.
    """

    __slots__ = ()


@dataclass(slots=True)
class ActionCore:
    """A named callable with the JSON Schema of its arguments.

    ``idempotent`` declares that running the action twice with the same arguments is harmless:
    after a crash such an action is run again, any other is reported as "outcome unknown".
    ``completes`` declares that a call that succeeds ends the task with its result as the answer.
    ``untrusted`` declares that it returns text from outside, which models read labelled as data.
    With an ``approval`` its calls wait for a person.
    """

    function: ActionFunction
    name: str
    parameters: dict[str, Any] = field(default_factory=dict)
    idempotent: bool = False
    completes: bool = False
    approval: Approval | None = None
    untrusted: bool = False

    async def execute(
        self,
        call: AgentToolCall,
        actions: Mapping[str, "ActionCore"] | None = None,
        action_override: ActionOverrideFunction | None = None,
    ) -> ActionResult:
        """Run the action, or what stands in for it; failures become an ``"error"`` result.

        The text of a failure reaches the agent without what looks like a secret. An exception that
        is no `ToolError` is also logged, with its traceback, and its text ends with a reference to
        that line; one that would end the program (``sys.exit``) is a failure like others.

        Args:
            call: The agent's call.
            actions: A table of actions; its entry of the same name is run in place of this one.
            action_override: Answers the call in place of the action; may return text or a dict
                that holds ``content``.
        """
        target = (actions or {}).get(self.name, self)
        try:
            if action_override is None:
                content: Any = await target.function(call.tool_args)
            else:
                content = await action_override(call)
        except ToolError as error:
            return "error", {"content": _shown(str(error))}
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the guard around foreign code
            kind = "action tool" if action_override is None else "action override tool"
            text, values = "%s '%s' of agent '%s' failed", (kind, self.name, current_call().agent)
            said = f"failed to execute {kind}: {_told(error)}"
            told = logged(logger, error, text, *values, level=logging.WARNING, said=said)
            return "error", {"content": told}
        if isinstance(content, ActionFailure):
            return "error", {"content": _shown(content.removeprefix(_ERROR))}
        if isinstance(content, dict):
            return "success", content
        return "success", {"content": content if isinstance(content, str) else str(content)}


def _shown(text: str) -> str:
    return redact_foreign(text, most=_LONGEST)


def _told(error: BaseException) -> str:
    """Return an exception's text, with its class where the text alone would say nothing."""
    if isinstance(error, SystemExit):
        return f"it tried to exit the program (SystemExit: {redact_foreign(str(error.code))})"
    text, name = redact_foreign(str(error)), type(error).__name__
    if not text.strip():
        return name
    return f"{name}: {text}" if isinstance(error, KeyError) else text
