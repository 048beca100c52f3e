"""What all ready-made actions share: reading arguments, and failures as texts for the agent."""

import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from mail.api.actions import MAILAction
from mail.core.actions import ActionFailure
from mail.egress.client import FetchError, NotPublic
from mail.errors import ConfigError, ToolError

Tool = Callable[[dict[str, Any]], Awaitable[str]]

MISSING: Final = "`{name}` is required"
_HINT: Final = "; an operator can allow it in mail.toml, [stdlib.http] allow"
_logger = logging.getLogger(__name__)


def make_action(
    function: Tool,
    properties: dict[str, dict[str, Any]],
    required: tuple[str, ...],
    *,
    idempotent: bool = False,
    untrusted: bool = True,
) -> MAILAction:
    """Make an action of a function; its name and docstring are the action's.

    What it returns is text from outside, unless it is not ``untrusted``.

    Failures that the agent or the operator can do something about become texts that begin with
    ``Error:`` (`ActionFailure`); for an agent they are errors.
    """
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    name = function.__name__.removeprefix("_")
    description = " ".join((function.__doc__ or "").split())
    run = make_tool_function(name, function)
    return MAILAction(
        name, description, parameters, run, idempotent=idempotent, untrusted=untrusted
    )


def text_argument(args: dict[str, Any], name: str, missing: str = MISSING) -> str:
    """Return an argument that must be a string.

    Args:
        missing: What to say when it is not there.

    Raises:
        ToolError: it is not there, or not text.
    """
    value = args.get(name)
    if value is None:
        raise ToolError(missing.format(name=name))
    if not isinstance(value, str):
        raise ToolError(f"`{name}` must be a string")
    return value


def object_argument(args: dict[str, Any], name: str, *, required: bool = True) -> dict[str, Any]:
    """Return an argument that must be a dictionary; an optional one is empty by default.

    Raises:
        ToolError: it is not there although required, or no dictionary.
    """
    value = args.get(name)
    if value is None:
        if required:
            raise ToolError(MISSING.format(name=name))
        return {}
    if not isinstance(value, dict):
        raise ToolError(f"`{name}` must be a dictionary")
    return value


def make_tool_function(name: str, function: Tool) -> Tool:
    """Wrap a function so that foreseen failures become texts for the agent; see `make_action`."""

    @functools.wraps(function)
    async def told(args: dict[str, Any]) -> str:
        try:
            return await function(args)
        except NotPublic as error:
            return ActionFailure(f"Error: {error}{_HINT}")
        except (FetchError, ToolError) as error:
            return ActionFailure(f"Error: {error}")
        except ConfigError as error:
            # No traceback: the text says all there is to mend.
            _logger.warning("%s cannot be used: %s", name, error)
            return ActionFailure(
                "Error: the settings of this action are invalid; the operator "
                "must correct mail.toml"
            )

    return told
