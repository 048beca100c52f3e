"""Mafia as far as manual-mail-game-guide.md shows it: one night, up to what it leaves behind.

What the guide only names (roles, personas, prompts) is that of `mail.examples.mafia`.
"""

import asyncio
import re
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from pydantic import BaseModel, Field

from mail import MAILAction, MAILAgentTemplate, MAILMessage, MAILSwarm, MAILSwarmTemplate
from mail.examples.mafia.prompts import create_agent_system_prompt, create_narrator_system_prompt
from mail.examples.mafia.roles import (
    DETECTIVE,
    DOCTOR,
    MAFIA,
    PERSONAS,
    Persona,
    Role,
    calculate_roles,
)
from mail.factories import base_agent_factory
from mail.llm import call, otherwise, when
from mail.llm.script import Call
from mail.llm.script_view import ScriptView

__all__ = ["SCRIPT", "Game", "GamePhase"]


def _votes(view: ScriptView) -> list[Call]:
    found = re.findall(r"<from>(\w+)</from>\n(?:<to>.*?</to>\n)?I kill (\w+)", view.body)
    return [call("mafia_vote_kill", mafia_name=who, target_name=whom) for who, whom in found]


SCRIPT = [
    when(tool_result="doctor_protect").then("The detective may wake."),
    when(tool_result="detective_investigate").then("The mafia may wake."),
    when(tool_result="mafia_vote_kill").then("The sun rises."),
    when(body=r"Use the doctor_protect tool.*").then(
        lambda view: call("doctor_protect", target_name=re.search(r"I protect (\w+)", view.body)[1])
    ),
    when(body="Use detective_investigate tool").then(
        lambda view: call(
            "detective_investigate", target_name=re.search(r"I look into (\w+)", view.body)[1]
        )
    ),
    when(body="Use mafia_vote_kill").then(_votes),
    when(body="Choose one player to protect").then("I protect Esther"),
    when(body="Choose one player to investigate").then("I look into Agnes"),
    when(body="Vote for who to kill").then("I kill Esther"),
    otherwise("Night falls."),
]
"""What the models say."""


class GamePhase(Enum):
    SETUP = "setup"
    NIGHT = "night"


@dataclass
class Agent:
    persona: Persona
    role: Role
    llm: str

    def build_agent_template(self) -> MAILAgentTemplate:
        return MAILAgentTemplate(
            name=self.persona.name,
            factory=base_agent_factory,
            comm_targets=["Narrator"],
            actions=[],
            agent_params={"llm": self.llm, "system": "You play.", "use_proxy": False},
            enable_entrypoint=True,
            can_complete_tasks=True,
        )


# --- 1. Game Initialization -----------------------------------------------------------------------


@dataclass
class Game:
    players: list[Agent] = field(default_factory=list)
    _swarm: MAILSwarm | None = None
    task_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    phase: GamePhase = GamePhase.SETUP
    day_number: int = 1
    narrator_llm: str = "openai/gpt-5-mini"
    protected_player: str | None = None
    investigated_player: str | None = None
    votes: dict[str, str] = field(default_factory=dict)
    victim: str | None = None

    @staticmethod
    def create(n: int, valid_llms: list[str] | None = None) -> "Game":
        game, personas = Game(), iter(PERSONAS)
        roles = calculate_roles(n)

        players = game.players
        for role in roles:
            players.append(
                Agent(
                    persona=next(personas),
                    role=role,
                    llm="openai/gpt-5-mini",
                )
            )
        player_names = [player.persona.name for player in players]

        agents = [player.build_agent_template() for player in players]
        agents.append(build_narrator_template(game, player_names))

        template = build_agent_swarm(agents)
        swarm = template.instantiate({"user_token": "dummy"}, "MafiaGame")

        asyncio.create_task(swarm.run_continuous(mode="manual"))  # noqa: RUF006 - as documented

        game._swarm = swarm
        return game

    @property
    def swarm(self) -> MAILSwarm:
        assert self._swarm is not None
        return self._swarm

    def get_player_by_name(self, name: str) -> Agent:
        return next(player for player in self.players if player.persona.name == name)

    def having(self, role: Role) -> list[Agent]:
        return [player for player in self.players if player.role == role]

    def get_mafia_members(self) -> list[Agent]:
        return self.having(MAFIA)

    def resolve_night_actions(self) -> None:
        [(chosen, _)] = Counter(self.votes.values()).most_common(1)
        self.victim = None if chosen == self.protected_player else chosen

    # --- 3. Stepping Agents in the Game -----------------------------------------------------------

    async def step_narrator(self, payload: str = "") -> MAILMessage:
        await self.swarm.await_queue_empty()

        return await self.swarm.manual_step(
            task_id=self.task_id,
            target="Narrator",
            response_targets=["all"],
            response_type="broadcast",
            payload=payload,
            dynamic_ctx_ratio=0.75,
            _llm=self.narrator_llm,
            _system=create_narrator_system_prompt(),
        )

    async def step_agent(
        self,
        agent_name: str,
        broadcast: bool = False,
        targets: list[str] | None = None,
        payload: str = "",
    ) -> MAILMessage:
        a = self.get_player_by_name(agent_name)

        if broadcast:
            response = await self.swarm.manual_step(
                task_id=self.task_id,
                target=agent_name,
                response_targets=["all"],
                response_type="broadcast",
                payload=payload,
                _llm=a.llm,
                _system=create_agent_system_prompt(a.persona, a.role),
            )
        else:
            response_targets = targets or ["Narrator"]
            response = await self.swarm.manual_step(
                task_id=self.task_id,
                target=agent_name,
                response_targets=response_targets,
                response_type="response",
                payload=payload,
                _llm=a.llm,
                _system=create_agent_system_prompt(a.persona, a.role),
            )
        return response

    # --- 4. Game Loop Example: Night Phase --------------------------------------------------------

    async def run_night_phase(self) -> None:
        self.phase = GamePhase.NIGHT
        [doctor], [detective] = self.having(DOCTOR), self.having(DETECTIVE)

        await self.step_narrator(payload=f"=== NIGHT {self.day_number} ===\nPrompt the Doctor.")

        if doctor:
            await self.step_agent(
                doctor.persona.name,
                broadcast=False,
                targets=["Narrator"],
                payload='Choose one player to protect. End with: "I protect [player_name]"',
            )

            await self.step_narrator(payload="Use the doctor_protect tool.")

        if detective:
            await self.step_agent(
                detective.persona.name,
                broadcast=False,
                targets=["Narrator"],
                payload="[PRIVATE] Choose one player to investigate...",
            )

            await self.step_narrator(payload="Use detective_investigate tool...")

        for mafia in self.get_mafia_members():
            other_mafia = [
                member.persona.name for member in self.get_mafia_members() if member is not mafia
            ]
            await self.step_agent(
                mafia.persona.name,
                broadcast=False,
                targets=["Narrator", *other_mafia],
                payload="Vote for who to kill...",
            )

        await self.step_narrator(payload="Use mafia_vote_kill for each vote...")

        self.resolve_night_actions()


# --- 5. Defining Actions (Tools) ------------------------------------------------------------------


class DoctorProtectArgs(BaseModel):
    """Note whom the doctor guards."""

    target_name: str = Field(description="Player to protect")


async def doctor_protect(game: "Game", args: dict) -> str:
    target = args["target_name"]
    game.protected_player = target
    return f"Doctor protected {target} for the night"


class InvestigateArgs(BaseModel):
    """Note into whom the detective looks."""

    target_name: str


async def detective_investigate(game: "Game", args: dict) -> str:
    game.investigated_player = args["target_name"]
    return f"The role is {game.get_player_by_name(args['target_name']).role.name}"


class VoteArgs(BaseModel):
    """Note a vote of the mafia."""

    mafia_name: str
    target_name: str


async def mafia_vote_kill(game: "Game", args: dict) -> str:
    game.votes[args["mafia_name"]] = args["target_name"]
    return f"{len(game.votes)} votes so far"


_MORE: list[tuple[type[BaseModel], Callable[["Game", dict], Awaitable[str]]]] = [
    (InvestigateArgs, detective_investigate),
    (VoteArgs, mafia_vote_kill),
]


def get_narrator_actions(game: "Game") -> list[MAILAction]:
    return [
        MAILAction.from_pydantic_model(
            model=DoctorProtectArgs,
            function=partial(doctor_protect, game),
            name="doctor_protect",
        ),
        *(
            MAILAction.from_pydantic_model(
                model=model, function=partial(function, game), name=function.__name__
            )
            for model, function in _MORE
        ),
    ]


def build_narrator_template(game: "Game", player_names: list[str]) -> MAILAgentTemplate:
    actions = get_narrator_actions(game)

    return MAILAgentTemplate(
        name="Narrator",
        factory=base_agent_factory,
        comm_targets=player_names,
        actions=actions,
        agent_params={
            "llm": "openai/gpt-5-mini",
            "system": create_narrator_system_prompt(),
            "use_proxy": False,
        },
        can_complete_tasks=True,
    )


def build_agent_swarm(agents: list[MAILAgentTemplate]) -> MAILSwarmTemplate:
    return MAILSwarmTemplate(
        name="mafia",
        agents=agents,
        actions=[action for agent in agents for action in agent.actions],
        entrypoint=agents[0].name,
    )
