"""What our layer costs over bare LiteLLM: per model call, and until the first piece of a reply.

A call through the layer and a bare one with the same arguments take turns, against a provider in a
process of its own. Their ratio is the median over the pairs, so that whatever slows the machine
down for a while slows both.
"""

import asyncio
import copy
import gc
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.first_token import report_first_tokens
from benchmarks.provider import MODELS, running_provider
from mail.factories import LiteLLMAgentFunction
from mail.llm.litellm_model import close_clients, load_library

_PAIRS = 300
_SECONDS = 20.0  # for each wire
_REQUESTS = 30
_WARM_UP = 10
_SETTLE = 0.005  # the library's book-keeping goes on when a call has returned
_WORDS = 40
_ENTRIES = 20
_ACTIONS = ("look_up", "look_around", "look_ahead")  # the MAIL tools make them ten


@dataclass
class Samples:
    """Wall and CPU seconds of each call through the layer, and of the bare call next to it."""

    ours: list[tuple[float, float]] = field(default_factory=list)
    bare: list[tuple[float, float]] = field(default_factory=list)

    def medians(self, clock: int) -> tuple[float, float]:
        """Return the milliseconds of ours and of bare on a clock (0: wall, 1: CPU)."""
        ours, bare = (statistics.median(s[clock] for s in which) for which in self._both())
        return ours * 1e3, bare * 1e3

    def ratio(self, clock: int) -> float:
        """Return ours over bare, as the median over the pairs."""
        return statistics.median(o[clock] / b[clock] for o, b in zip(*self._both(), strict=True))

    def noise(self, clock: int) -> float:
        """Return the same of bare calls over other bare calls: 1 on a machine that is quiet."""
        pairs = zip(self.bare, self.bare[1:], strict=False)
        return statistics.median(
            (a[clock] / b[clock]) if n % 2 else (b[clock] / a[clock])
            for n, (a, b) in enumerate(pairs)
        )

    def _both(self) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
        return self.ours, self.bare


async def overhead(wire: str, pairs: int = _PAIRS, seconds: float = _SECONDS) -> Samples:
    """Measure calls on a wire: so many pairs, or as many as fit into the seconds."""
    agent = _agent(wire)
    history = await _history(agent)
    function, arguments = await _recorded(agent, history)
    samples = Samples()

    async def ours() -> None:
        samples.ours.append(await _timed(lambda: agent(history)))

    async def bare() -> None:
        # The library changes what it is given. To copy it is not a part of the call.
        given = copy.deepcopy(arguments)
        samples.bare.append(await _timed(lambda: _read(function, given)))

    for _ in range(min(_WARM_UP, pairs)):
        await ours()
        await bare()
    samples.ours.clear()
    samples.bare.clear()
    end = time.perf_counter() + seconds
    for number in range(pairs):
        for call in (ours, bare) if number % 2 else (bare, ours):
            await call()
        if time.perf_counter() > end:
            break
    return samples


def _agent(wire: str) -> LiteLLMAgentFunction:
    llm, tool_format = MODELS[wire]
    return LiteLLMAgentFunction(
        name="lead",
        comm_targets=["worker", "helper"],
        tools=[_action(name) for name in _ACTIONS],
        llm=llm,
        system="You lead a team of two. Answer questions and write to them if need be. " * 20,
        enable_entrypoint=True,
        tool_format=tool_format,
        use_proxy=False,
    )


def _action(name: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {
            "word": {"type": "string", "description": "What to look for"},
            "language": {"type": "string", "enum": ["English", "French", "German"]},
            "limit": {"type": "integer", "description": "How many entries to return at most"},
        },
        "required": ["word"],
    }
    function = {"name": name, "description": "Find entries.", "parameters": parameters}
    return {"type": "function", "function": function}


async def _history(agent: LiteLLMAgentFunction) -> list[dict[str, Any]]:
    """Let the agent make a history in its own format: calls and results between two mails."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "Find this out, please. " * 20}]
    while len(history) < _ENTRIES - 1:
        _, calls = await agent(history)
        history += calls[0].responses or [calls[0].completion]
        history += [call.create_response_msg("Found: a word, a book. " * 10) for call in calls]
    return [*history, {"role": "user", "content": "And now the next thing. " * 20}]


async def _recorded(
    agent: LiteLLMAgentFunction, history: list[dict[str, Any]]
) -> tuple[Callable[..., Awaitable[Any]], dict[str, Any]]:
    """Return the function of LiteLLM that the agent calls, and with what."""
    litellm = load_library()
    seen: list[tuple[Callable[..., Awaitable[Any]], dict[str, Any]]] = []

    def recorder(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def record(**arguments: Any) -> Any:
            seen.append((function, copy.deepcopy(arguments)))
            return await function(**arguments)

        return record

    originals = {name: getattr(litellm, name) for name in ("acompletion", "aresponses")}
    for name, function in originals.items():
        setattr(litellm, name, recorder(function))
    try:
        await agent(history)
    finally:
        for name, function in originals.items():
            setattr(litellm, name, function)
    return seen[0]


async def _read(function: Callable[..., Awaitable[Any]], arguments: dict[str, Any]) -> None:
    async for _ in await function(**arguments):
        pass


async def _timed(call: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Return the wall time of a call, and the CPU time of this process until things settled."""
    gc.collect(1)  # or a call would pay for the garbage of the one before it
    cpu, wall = time.process_time(), time.perf_counter()
    await call()
    wall = time.perf_counter() - wall
    await asyncio.sleep(_SETTLE)
    return wall, time.process_time() - cpu


async def report(pairs: int = _PAIRS, seconds: float = _SECONDS, requests: int = _REQUESTS) -> None:
    """Print both tables."""
    await asyncio.to_thread(load_library)
    try:
        async with running_provider(_WORDS):
            for wire in MODELS:
                _print_overhead(wire, await overhead(wire, pairs, seconds))
        await report_first_tokens(requests)
    finally:
        await close_clients()


def _print_overhead(wire: str, samples: Samples) -> None:
    for clock, name in enumerate(("wall", "CPU")):
        ours, bare = samples.medians(clock)
        print(
            f"{wire:12s} call, {name:4s} time, {len(samples.ours):4d} pairs"
            f"   LiteLLM {bare:7.2f} ms   ours {ours:7.2f} ms"
            f"  {samples.ratio(clock):6.3f}x (aim 1.05; bare over bare {samples.noise(clock):.3f}x)"
        )
