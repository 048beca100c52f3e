"""Names that a runtime refers to must be there."""

from typing import Any

import pytest

from mail.core.actions import ActionCore
from mail.core.agents import AgentCore
from mail.core.runtime.validation import check_names
from mail.errors import ConfigError


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
