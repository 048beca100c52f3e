"""Helpers of ready-made actions: arguments, requests, and failures as texts for agents."""

import asyncio
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_origin

from mail.api.actions import MAILAction
from mail.config.stdlib import HttpConfig
from mail.core.actions import ActionFailure
from mail.egress.bodies import LimitedBody, read_body
from mail.egress.client import guarded_client, guarded_request, opened
from mail.egress.rules import FetchError, NotPublic
from mail.errors import ConfigError, ToolError
from mail.stdlib.settings import egress_policy
from mail.version import get_version

if TYPE_CHECKING:
    import httpx

Result = TypeVar("Result")

USER_AGENT: Final = f"mail/{get_version()}"

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
"""The default of an argument that is a dictionary."""

_HINT: Final = "; an operator can allow it in mail.toml, [stdlib.http] allow"
_TYPES: Final = {str: ("string", "a string"), Mapping: ("object", "a dictionary")}
_logger = logging.getLogger(__name__)


def ready_action(
    *, idempotent: bool = False, untrusted: bool = True, missing: str = "`{}` is required"
) -> Callable[[Callable[..., Awaitable[str]]], MAILAction]:
    """Make an action of a function; its name, docstring and parameters are the action's.

    A parameter is annotated with its type and its description: ``Annotated[str, "The file"]``.
    The types are ``str``, ``Mapping[str, Any]`` and ``Mapping[str, str]``.

    Args:
        idempotent: As of `MAILAction`.
        untrusted: Whether it returns text from outside.
        missing: The error for an agent that leaves an argument out.
    """

    def decorate(function: Callable[..., Awaitable[str]]) -> MAILAction:
        properties: dict[str, dict[str, Any]] = {}
        parameters = inspect.signature(function).parameters
        for name, parameter in parameters.items():
            kind, description = get_args(parameter.annotation)
            kind_name, _ = _TYPES[get_origin(kind) or kind]
            properties[name] = {"type": kind_name, "description": description}
            if kind == Mapping[str, str]:
                properties[name]["additionalProperties"] = {"type": "string"}
        required = [name for name, one in parameters.items() if one.default is one.empty]

        async def checked(args: dict[str, Any]) -> str:
            given = {}
            for name, parameter in parameters.items():
                value = args.get(name)
                kind = get_args(parameter.annotation)[0]
                kind = get_origin(kind) or kind
                if value is None and name in required:
                    raise ToolError(missing.format(name))
                if value is not None and not isinstance(value, kind):
                    raise ToolError(f"`{name}` must be {_TYPES[kind][1]}")
                given[name] = parameter.default if value is None else value
            return await function(**given)

        checked.__module__ = function.__module__  # by which a swarm is known to have files
        return MAILAction(
            function.__name__,
            " ".join((function.__doc__ or "").split()),
            {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": False,
            },
            make_tool_function(function.__name__, checked),
            idempotent=idempotent,
            untrusted=untrusted,
        )

    return decorate


def make_tool_function(
    name: str, function: Callable[[dict[str, Any]], Awaitable[str]]
) -> Callable[[dict[str, Any]], Awaitable[str]]:
    """Wrap a function so that foreseen failures become texts that begin with ``Error:``.

    These are failures that the agent or the operator can do something about. They are
    `ActionFailure`, so for an agent they are errors.
    """

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


async def exchange(
    method: str,
    url: str,
    show: Callable[["httpx.Response", LimitedBody], Result],
    *,
    headers: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | None = None,
) -> Result:
    """Send a request and return what ``show`` makes of the answer.

    Args:
        method: The verb.
        url: An address; redirects from it are followed when they lead to public addresses, too.
        show: Takes the answer and its body, of which no more was read than the settings allow.
        headers: Headers that were checked.
        body: Sent as JSON.

    Raises:
        FetchError: the address is refused, or there is no answer.
        ConfigError: the settings are wrong.
    """
    config = HttpConfig()
    policy = egress_policy(config)
    try:
        async with (
            asyncio.timeout(config.timeout),
            guarded_client(
                policy, timeout=config.timeout, headers={"User-Agent": USER_AGENT}
            ) as client,
            opened(
                client, guarded_request(client, method, url, headers=headers, json=body)
            ) as response,
        ):
            return show(response, await read_body(response, config.max_bytes))
    except TimeoutError:
        raise FetchError(f"no complete answer within {config.timeout:g} seconds") from None
