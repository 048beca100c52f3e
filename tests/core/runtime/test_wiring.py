"""Names that a runtime refers to must be there."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from mail.core.actions import ActionCore
from mail.core.agents import AgentCore
from mail.core.runtime.validation import check_names
from mail.errors import ConfigError, ShuttingDown
from mail.testing import tool_calls
from tests.support.swarm import runtime_of, supervisor, user_message


async def _unused(*_: Any) -> Any:
    raise AssertionError


DIG = {"dig": ActionCore(function=_unused, name="dig")}


def _agent(*targets: str, **fields: Any) -> AgentCore:
    return AgentCore(function=_unused, comm_targets=list(targets), **fields)


def _check(**changes: Any) -> None:
    names: dict[str, Any] = {
        "agents": {"boss": _agent("worker@team", "boss"), "worker": _agent("boss", actions=DIG)},
        "actions": {"fill": ActionCore(function=_unused, name="fill")},
        "swarm": "team",
        "entrypoint": "boss",
        "enable_interswarm": False,
        "breakpoint_tools": ["dig", "fill", "send_request"],
        "exclude_tools": ["help", "fill"],
    }
    check_names(**(names | changes))


def test_names_that_are_there_are_good() -> None:
    _check()
    for target in ("x@beta", "*@beta", "*@*"):
        _check(agents={"boss": _agent(target, actions=DIG)}, enable_interswarm=True)


@pytest.mark.parametrize("target", ["x@*", "@beta", "x@", "all@beta", "x@beta@gamma", "*@team"])
def test_targets_that_name_no_agent_of_another_swarm_are_refused(target) -> None:
    with pytest.raises(ConfigError, match=r"agent 'boss' has .*communication target '"):
        _check(agents={"boss": _agent(target, actions=DIG)}, enable_interswarm=True)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"entrypoint": "bos"}, r"entrypoint agent 'bos' not found in swarm\. Did you mean 'boss'"),
        (
            {"agents": {"boss": _agent("wroker"), "worker": _agent("boss", actions=DIG)}},
            r"agent 'boss' has invalid communication target 'wroker'\. Did you mean 'worker'\?",
        ),
        (
            {"agents": {"boss": _agent("x@beta")}},
            "agent 'boss' has interswarm communication target 'x@beta' but interswarm messaging is "
            "not enabled for this swarm",
        ),
        ({"breakpoint_tools": ["dgi"]}, r"breakpoint tool 'dgi' not found in swarm\. Did you mean"),
        ({"exclude_tools": ["halp"]}, r"excluded tool 'halp' is not valid\. Did you mean 'help'"),
        (
            {"agents": {"boss": _agent(exclude_tools=frozenset({"zzz"}), actions=DIG)}},
            "excluded tool 'zzz' is not valid$",
        ),
    ],
)
def test_a_name_that_is_not_there_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        _check(**changes)


async def test_the_memory_of_a_runtime_that_has_stopped_is_free_without_the_collector() -> None:
    """Servers let go of callers all the time, and the collector would stop them to look for it."""

    async def answer(*_: Any) -> Any:
        return None, tool_calls(("task_complete", {"finish_message": "done"}))

    runtime = runtime_of({"supervisor": supervisor(answer, ())})
    await runtime.submit_and_wait(user_message(), timeout=10)
    gone = weakref.ref(runtime)
    gc.disable()
    try:
        await runtime.shutdown()
        await runtime.shutdown()  # once more is fine
        with pytest.raises(ShuttingDown):
            await runtime.submit(user_message())
        del runtime
        await asyncio.sleep(0.01)
        assert gone() is None
    finally:
        gc.enable()
