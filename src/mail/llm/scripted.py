"""A model that replies from a script: tests, docs and demos without a provider."""

import asyncio
import hashlib
import json
import re
import uuid
from collections.abc import AsyncGenerator
from typing import Any

from pydantic_core import to_json

from mail.core.tools.schema import get_tool_spec_name
from mail.errors import ModelError
from mail.llm.request import CallPiece, Delta, ModelRequest
from mail.llm.retry import Sleep
from mail.llm.script import Call, Fail, Say, Script, Think, run_script
from mail.llm.script_check import check_script, check_steps
from mail.llm.script_view import ScriptView

__all__ = ["ScriptedModel", "call_id", "words"]

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
        ConfigError: the script is none; see `mail.llm.script_check.check_script`.
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
        seed = request.step or _digest(request.messages)
        calls = 0
        for step in steps:
            if isinstance(step, Call):
                yield Delta(calls=(_piece(step, seed, calls),))
                calls += 1
                continue
            async for delta in self._spoken(step):
                yield delta
        yield Delta(finish="tool_calls" if calls else "stop")

    async def _spoken(self, step: Say | Think | Fail) -> AsyncGenerator[Delta, None]:
        if isinstance(step, Fail):
            raise ModelError(step.reason, status=step.status, retry_after=step.retry_after)
        delay = self._delay if step.delay is None else step.delay
        for word in words(step.text):
            if delay:
                await self._sleep(delay)
            yield _word(step, word)


def _word(step: Say | Think, word: str) -> Delta:
    return Delta(text=word) if isinstance(step, Say) else Delta(reasoning=word)


def _piece(step: Call, seed: str, index: int) -> CallPiece:
    arguments = step.arguments if isinstance(step.arguments, str) else json.dumps(step.arguments)
    return CallPiece(index, call_id(seed, index), step.name, arguments)


def _digest(messages: Any) -> str:
    return hashlib.sha256(to_json([dict(message) for message in messages])).hexdigest()
