"""The agents of a game: the narrator, one per player, and the referee who closes the task."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mail.api.actions import MAILAction
from mail.api.agents import MAILAgentTemplate
from mail.api.swarm import MAILSwarmTemplate
from mail.core.agents import AgentFunction, AgentOutput, ToolChoice
from mail.core.tools.call import AgentToolCall
from mail.core.tools.catalogue import CATALOGUE
from mail.examples.mafia.personas import Persona
from mail.examples.mafia.prompts import (
    NARRATOR,
    create_agent_system_prompt,
)
from mail.examples.mafia.roles import Faction, Role
from mail.factories.action import LiteLLMActionAgentFunction

REFEREE: Final = "Referee"
"""The agent that closes the game's task; it has no model."""

_PROXY = "litellm_proxy/"


@dataclass(slots=True)
class Agent:
    """One player: the persona that all see, the role that nobody does, the model that plays it."""

    persona: Persona
    role: Role
    llm: str
    alive: bool = True

    @property
    def name(self) -> str:
        """The persona's name, which is also the agent's."""
        return self.persona.name

    @property
    def is_mafia(self) -> bool:
        """Tell whether the player wins with the mafia."""
        return self.role.faction is Faction.MAFIA

    def build_agent_template(self) -> MAILAgentTemplate:
        """Return the agent of the swarm: words only, no tools."""
        system = create_agent_system_prompt(self.persona, self.role)
        return build_model_agent(self.name, self.llm, system, [NARRATOR], [])


def build_agent_swarm(agents: Sequence[MAILAgentTemplate]) -> MAILSwarmTemplate:
    """Return the swarm of a game: the narrator and the players, and the referee."""
    return MAILSwarmTemplate(
        name="mafia",
        agents=[*agents, _referee_template()],
        entrypoint=NARRATOR,
        description="A game of Mafia, played step by step",
    )


def build_model_agent(
    name: str, llm: str, system: str, targets: Sequence[str], actions: list[MAILAction]
) -> MAILAgentTemplate:
    """Build an agent without MAIL's own tools: who hears what is the game's decision alone."""
    return MAILAgentTemplate(
        name=name,
        factory=LiteLLMActionAgentFunction,
        comm_targets=list(targets),
        actions=actions,
        agent_params={"llm": llm, "system": system, "use_proxy": llm.startswith(_PROXY)},
        enable_entrypoint=name == NARRATOR,
        tool_format="completions",
        exclude_tools=list(CATALOGUE),
    )


def _referee_template() -> MAILAgentTemplate:
    return MAILAgentTemplate(
        name=REFEREE,
        factory=_make_referee,
        comm_targets=[],
        actions=[],
        agent_params={},
        enable_entrypoint=True,
        can_complete_tasks=True,
    )


def _make_referee(**params: Any) -> AgentFunction:
    async def close_task(messages: list[dict[str, Any]], tool_choice: ToolChoice) -> AgentOutput:
        """Complete the task with the last line of the step's payload."""
        result = str(messages[-1]["content"]).rpartition("\n")[2]
        call = AgentToolCall(
            tool_name="task_complete",
            tool_args={"finish_message": result},
            tool_call_id="close_game",
            completion={"role": "assistant", "content": result},
        )
        return None, [call]

    return close_task
