"""Swarms and a script for the primers' blocks."""

import json

from mail import MAILAction, MAILAgentTemplate, MAILSwarmTemplate
from mail.factories import LiteLLMAgentFunction, LiteLLMSupervisorFunction
from mail.llm import call, otherwise, when

__all__ = ["CLAUDE", "SCRIPT", "minimal_swarm", "solo_template", "stage_template", "tool"]

CLAUDE = {"llm": "anthropic/claude-sonnet-4-20250514", "system": "", "use_proxy": False}
"""What stands for the document's ``agent_params={...}``."""

SCRIPT = [
    when(tool_result="human_review", result="Approved").then(
        call("task_complete", finish_message="Processed, for it was approved.")
    ),
    when(body="Please process").then(call("human_review", field="value")),
    when(body=r"2 \+ 2").then(call("task_complete", finish_message="4")),
    when(body="First task").then(call("task_complete", finish_message="The first is done.")),
    when(body="Second task").then(call("task_complete", finish_message="The second is done.")),
    when(body=r"Describe the scene\.").then("Rain over the harbour."),
    when(body=r"What do you do\?").then("I open the umbrella."),
    otherwise(call("task_complete", finish_message="Hello to you, too.")),
]


def tool(name: str, result: str = "done") -> MAILAction:
    """Return an action that the document only names."""

    async def run(args: dict) -> str:
        return f"{result}: {json.dumps(args)}"

    parameters = {"type": "object", "properties": {"field": {"type": "string"}}}
    return MAILAction(name, f"The tool {name}", parameters, run)


def minimal_swarm(llm: str = "anthropic/claude-sonnet-4-20250514") -> MAILSwarmTemplate:
    """Return the minimal swarm with which both primers start."""
    supervisor = MAILAgentTemplate(
        name="supervisor",
        factory=LiteLLMSupervisorFunction,
        comm_targets=[],
        actions=[],
        agent_params={
            "llm": llm,
            "system": "You are a helpful assistant.",
            "use_proxy": False,
        },
        enable_entrypoint=True,
        can_complete_tasks=True,
        tool_format="completions",
    )
    return MAILSwarmTemplate(
        name="my_swarm",
        version="1.0.0",
        agents=[supervisor],
        actions=[],
        entrypoint="supervisor",
    )


def solo_template(
    *actions: MAILAction, breakpoint_tools: tuple[str, ...] = ()
) -> MAILSwarmTemplate:
    """Return the template that the sections on running a swarm start from."""
    supervisor = MAILAgentTemplate(
        name="supervisor",
        factory=LiteLLMSupervisorFunction,
        comm_targets=[],
        actions=list(actions),
        agent_params=CLAUDE,
        enable_entrypoint=True,
        can_complete_tasks=True,
        tool_format="completions",
    )
    return MAILSwarmTemplate(
        name="my_swarm",
        version="1.0.0",
        agents=[supervisor],
        actions=list(actions),
        entrypoint="supervisor",
        breakpoint_tools=breakpoint_tools,
    )


def stage_template() -> MAILSwarmTemplate:
    """Return the narrator and the player of the sections on manual mode."""
    narrator = MAILAgentTemplate(
        name="narrator",
        factory=LiteLLMSupervisorFunction,
        comm_targets=["player1"],
        actions=[],
        agent_params=CLAUDE | {"system": "You narrate."},
        enable_entrypoint=True,
        can_complete_tasks=True,
        tool_format="completions",
    )
    player1 = MAILAgentTemplate(
        name="player1",
        factory=LiteLLMAgentFunction,
        comm_targets=["narrator"],
        actions=[],
        agent_params=CLAUDE | {"system": "You play."},
        tool_format="completions",
    )
    return MAILSwarmTemplate("stage", "1.0.0", [narrator, player1], [], "narrator")
