"""Whether a script is one: what is wrong is told when the model is made, not in its first reply."""

from collections.abc import Sequence
from typing import Any, Final

from mail.errors import ConfigError
from mail.llm.script import Call, Fail, Rule, Say, Think, Unfinished

__all__ = ["check_script", "check_steps"]

_STEPS: Final = (Say, Think, Call, Fail)
_RULE: Final = "a rule is when(…).then(…) or otherwise(…)"
_STEP: Final = "a step is call(…), say(…), think(…), fail(…) or text"


def check_script(script: object) -> None:
    """Check that something is a list of rules, or a function.

    Raises:
        ConfigError: it is something else, a rule is not complete, or a step is none.
    """
    if isinstance(script, Unfinished):
        raise ConfigError("the script is a when(…) without .then(…), and not in a list")
    if callable(script):
        return
    if isinstance(script, Rule | Say | Think | Call | Fail | str) or not isinstance(
        script, Sequence
    ):
        raise ConfigError(
            f"a script is a list of rules, or a function, got {_kind(script)}; {_RULE}"
        )
    for number, rule in enumerate(script, 1):
        _check_rule(f"rule {number} of the script", rule)


def check_steps(steps: Sequence[Any]) -> None:
    """Check what a function of a script returned, as steps.

    Raises:
        ConfigError: one of them is none.
    """
    for step in steps:
        if not isinstance(step, _STEPS):
            raise ConfigError(f"the script replies with {_kind(step)}; {_STEP}")


def _check_rule(where: str, rule: object) -> None:
    if isinstance(rule, Unfinished):
        raise ConfigError(f"{where} is a when(…) without .then(…)")
    if not isinstance(rule, Rule):
        raise ConfigError(f"{where} is {_kind(rule)}; {_RULE}")
    for step in rule.steps:
        _check_step(where, step)


def _check_step(where: str, step: object) -> None:
    if isinstance(step, Unfinished | Rule):
        raise ConfigError(f"{where} has another rule as a step; {_STEP}, or a function of the view")
    if isinstance(step, str | Say | Think | Call | Fail) or callable(step):
        return
    if not isinstance(step, Sequence):
        raise ConfigError(
            f"{where} has {_kind(step)} as a step; {_STEP}, or a function of the view"
        )
    for part in step:
        _check_step(where, part)


def _kind(value: object) -> str:
    return repr(value) if value is None or isinstance(value, int | float) else type(value).__name__
