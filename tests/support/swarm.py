"""Small runtimes for tests: agents from functions, messages from a user."""

from typing import Any

from mail.api import MAILAgentTemplate
from mail.clock import SystemClock
from mail.core.actions import ActionCore
from mail.core.agents import AgentCore, AgentFunction
from mail.core.compose import Composer
from mail.core.message import MAILMessage, MessageKind, create_agent_address, create_user_address
from mail.core.runtime import MAILRuntime
from mail.factories.supervisor import LiteLLMSupervisorFunction
from mail.llm.scripted import ScriptedModel

SWARM = "test-swarm"


def user_message(
    body: str = "Hello",
    task_id: str = "task-1",
    to: str = "supervisor",
    kind: MessageKind = "request",
) -> MAILMessage:
    """Return a message from the user to one agent."""
    composer = Composer(SWARM, SystemClock())
    return composer.message(
        kind, task_id, create_user_address("alice"), [create_agent_address(to)], "Question", body
    ).to_wire()


def supervisor(function: AgentFunction, targets: tuple[str, ...] = ("worker",)) -> AgentCore:
    """Return an agent that may do everything."""
    return AgentCore(
        function=function,
        comm_targets=list(targets),
        enable_entrypoint=True,
        can_complete_tasks=True,
    )


def worker(
    function: AgentFunction,
    targets: tuple[str, ...] = ("supervisor",),
    actions: dict[str, ActionCore] | None = None,
) -> AgentCore:
    """Return an agent that may not complete tasks."""
    return AgentCore(function=function, comm_targets=list(targets), actions=actions)


def runtime_of(agents: dict[str, AgentCore], **options: Any) -> MAILRuntime:
    """Return a runtime of the user alice over these agents."""
    actions = {
        name: action for agent in agents.values() for name, action in (agent.actions or {}).items()
    }
    options = {"entrypoint": "supervisor", "print_llm_streams": False, **options}
    return MAILRuntime(
        agents=agents,
        actions=actions,
        user_id="alice",
        user_role="user",
        swarm_name=SWARM,
        **options,
    )


def last_body(messages: list[dict[str, Any]]) -> str:
    """Return the text of the newest entry of a history."""
    return str(messages[-1].get("content") or "")


def scripted_agent(name: str, script: Any, *targets: str, **more: Any) -> MAILAgentTemplate:
    """Return an entrypoint that completes tasks, whose model does what a script says.

    Args:
        name: Its name.
        script: A script, a model, or None if `llm` says which one.
        targets: Whom it may write to.
        more: Other fields, and ``system``, ``llm`` and ``use_proxy`` of its parameters.
    """
    params: dict[str, Any] = {"system": more.pop("system", "")}
    params |= {key: more.pop(key) for key in ("llm", "use_proxy") if key in more}
    if script is not None:
        model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
        params |= {"llm": "scripted", "model": model}
    fields = {
        "factory": LiteLLMSupervisorFunction,
        "actions": [],
        "enable_entrypoint": True,
        "can_complete_tasks": True,
        "tool_format": "completions",
    }
    return MAILAgentTemplate(
        name=name, comm_targets=list(targets), agent_params=params, **(fields | more)
    )
