"""Calling an agent's factory; what it does not take is told in words of the agent's own entry."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, get_args

from mail.core.suggest import did_you_mean, hinted
from mail.errors import ConfigError
from mail.factories.checks import of_agent

__all__ = ["call_factory", "check_factory"]

_UNKNOWN: Final = re.compile(r"got an unexpected keyword argument '(\w+)'")
_MISSING: Final = re.compile(r"missing .*argument.*'(\w+)'$")
_FUNCTION: Final = re.compile(r"^[\w.<>]+\(\) ")
_OWN_PACKAGE: Final = __name__.partition(".")[0]


def call_factory(agent: str, factory: Callable[..., Any], params: Mapping[str, Any]) -> Any:
    """Call a factory and return what it makes.

    Args:
        agent: The agent's name, for errors.
        factory: Any callable.
        params: Its keyword arguments.

    Raises:
        ConfigError: the factory does not take these parameters, or refuses a value of one.
    """
    try:
        with of_agent(agent):
            return factory(**params)
    except TypeError as error:
        raise ConfigError(_told(agent, factory, params, str(error))) from error
    except SystemExit as error:
        text = f"factory of agent '{agent}' tried to end the program (SystemExit: {error.code})"
        raise ConfigError(text) from error


def check_factory(agent: str, factory: Callable[..., Any], params: Mapping[str, Any]) -> None:
    """Check that a factory takes its parameters, without running code of the swarm's author.

    Factories of this package are called: all they do is to check and keep what they are given.

    Raises:
        ConfigError: as `call_factory`.
    """
    if _is_own(factory):
        call_factory(agent, factory, params)
        return
    try:
        signature = inspect.signature(factory)
    except (ValueError, TypeError):  # a callable of C, which says nothing about itself
        return
    try:
        signature.bind(**params)
    except TypeError as error:
        raise ConfigError(_told(agent, factory, params, str(error))) from error


def _is_own(factory: Callable[..., Any]) -> bool:
    made_by: Any = factory.__init__ if isinstance(factory, type) else factory  # type: ignore[misc]  # a class's own
    home = getattr(made_by, "__module__", None)
    return isinstance(home, str) and home.partition(".")[0] == _OWN_PACKAGE


def _told(agent: str, factory: Callable[..., Any], params: Mapping[str, Any], said: str) -> str:
    """Say what a `TypeError` means; its own words may name a class that nobody configured."""
    what = f"factory of agent '{agent}' does not take the agent's parameters"
    unknown = _UNKNOWN.search(said)
    if unknown is None or unknown[1] not in params:
        return f"{what}: {_FUNCTION.sub('', said)}{_instead(factory, params, said)}"
    known = [name for name in _accepted(factory) if name not in params]
    shown = getattr(factory, "__name__", type(factory).__name__)
    return hinted(f"{what}: {shown} has no parameter '{unknown[1]}'", unknown[1], known)


def _instead(factory: Callable[..., Any], params: Mapping[str, Any], said: str) -> str:
    """Say which of the given parameters stands for a missing one, if its name is close."""
    missing = _MISSING.search(said)
    if missing is None:
        return ""
    known = set(_accepted(factory))
    for given in (name for name in params if name not in known):
        if did_you_mean(given, [missing[1]]):
            return f"; it has '{given}'. Did you mean '{missing[1]}'?"
    return ""


def _accepted(factory: Callable[..., Any]) -> Iterator[str]:
    """Yield the parameters that a factory, or an agent function that it makes, may be given."""
    from mail.factories.base import LiteLLMAgentFunction

    made: tuple[type, ...] = (LiteLLMAgentFunction,)
    if isinstance(factory, type):
        made = (*factory.__mro__, *made)
    else:
        yield from _parameters(factory)
    for kind in made:
        if "__init__" in vars(kind):
            yield from _parameters(kind.__init__)  # type: ignore[misc]  # of each class its own


def _parameters(function: Callable[..., Any]) -> Iterator[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a callable of C
        return
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            for options in get_args(parameter.annotation):
                yield from getattr(options, "__annotations__", ())
        elif parameter.kind is not parameter.VAR_POSITIONAL and not parameter.name.startswith("_"):
            yield parameter.name
