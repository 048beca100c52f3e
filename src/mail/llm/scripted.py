"""A model that replies from a script: tests, docs and demos without a provider."""

import asyncio
import hashlib
import json
import re
import uuid
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from pydantic_core import to_json

from mail.core.tools.schema import get_tool_spec_name
from mail.errors import ConfigError, ModelError
from mail.llm.request import CallPiece, Delta, ModelRequest
from mail.llm.retry import Sleep
from mail.llm.script import Call, Fail, Rule, Say, Script, Think, Unfinished, run_script
from mail.llm.script_view import ScriptView

_CALL_IDS = uuid.UUID("b1d0f6a4-7f0e-5f5a-8f43-2f1f5f7b9d21")


def words(text: str) -> list[str]:
    """Split text into words, each with the white space that follows it."""
    return re.findall(r"\s*\S+\s*|\s+", text)


def call_id(seed: str, index: int) -> str:
    """Return the id of a turn's ``index``-th call: always the same for the same turn."""
    return f"call_{uuid.uuid5(_CALL_IDS, f'{seed}/{index}').hex}"


class ScriptedModel:
    """Replies as a script says (see `mail.llm.script`).

    Args:
        script: Rules, or a function (plain or async) from a view to steps.
        delay: Seconds before each word of a text that has no delay of its own.
        sleep: Waits.

    Raises:
        ConfigError: the script is none; see `mail.llm.scripted.check_script`.
    """

    def __init__(self, script: Script, *, delay: float = 0.0, sleep: Sleep = asyncio.sleep) -> None:
        check_script(script)
        self._script = script
        self._delay = delay
        self._sleep = sleep

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Reply from the script; see `mail.llm.request.ChatModel.stream`."""
        view = ScriptView(
            request.messages,
            system=request.system,
            model=request.model,
            tools=[name for tool in request.tools if (name := get_tool_spec_name(tool))],
            tool_choice=request.tool_choice,
        )
        steps = await run_script(self._script, view)
        check_steps(steps)
        calls, seed = 0, request.step
        if not seed:
            messages = to_json([dict(message) for message in request.messages])
            seed = hashlib.sha256(messages).hexdigest()
        for step in steps:
            if isinstance(step, Fail):
                raise ModelError(step.reason, status=step.status, retry_after=step.retry_after)
            if isinstance(step, Call):
                given = step.arguments
                text = given if isinstance(given, str) else json.dumps(given)
                yield Delta(calls=(CallPiece(calls, call_id(seed, calls), step.name, text),))
                calls += 1
                continue
            delay = self._delay if step.delay is None else step.delay
            for word in words(step.text):
                if delay:
                    await self._sleep(delay)
                yield Delta(text=word) if isinstance(step, Say) else Delta(reasoning=word)
        yield Delta(finish="tool_calls" if calls else "stop")


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
    single = isinstance(script, Rule | Say | Think | Call | Fail | str)
    if single or not isinstance(script, Sequence):
        raise ConfigError(
            f"a script is a list of rules, or a function, got {_kind(script)}; {_RULE}"
        )
    for number, rule in enumerate(script, 1):
        where = f"rule {number} of the script"
        if isinstance(rule, Unfinished):
            raise ConfigError(f"{where} is a when(…) without .then(…)")
        if not isinstance(rule, Rule):
            raise ConfigError(f"{where} is {_kind(rule)}; {_RULE}")
        _check_step(where, list(rule.steps))


def check_steps(steps: Sequence[Any]) -> None:
    """Check what a function of a script returned, as steps.

    Raises:
        ConfigError: one of them is none.
    """
    for step in steps:
        if not isinstance(step, Say | Think | Call | Fail):
            raise ConfigError(f"the script replies with {_kind(step)}; {_STEP}")


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
