# ruff: noqa: T201 - the guide's program prints its winner
"""The game that manual-mail-game-guide.md builds in nine steps, as a program::

python -m tests.documents.guide_game
"""

import asyncio
import uuid
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from pydantic import BaseModel, Field

from mail import MAILAction, MAILAgentTemplate, MAILMessage, MAILSwarm, MAILSwarmTemplate
from mail.factories import base_agent_factory
from mail.llm import call, otherwise, when

__all__ = ["SCRIPT", "GamePhase", "MyGame", "Player", "build_swarm", "get_gamemaster_actions"]

GAME_MASTER = "You are the Game Master"
SCRIPT = [
    when(system=GAME_MASTER, tool_result="set_challenge").then("Let us hear your verses!"),
    when(system=GAME_MASTER, tool_result="score_points").then("The points are given."),
    when(system=GAME_MASTER, body="Use set_challenge").then(
        call("set_challenge", challenge="A haiku about rain")
    ),
    when(system=GAME_MASTER, body="Use score_points").then(
        call("score_points", player_name="Alice", points=5),
        call("score_points", player_name="Bob", points=3),
    ),
    when(system=GAME_MASTER, body="Welcome the players").then("Welcome to the game!"),
    when(system=GAME_MASTER, body="The game is over").then("What a game it was!"),
    otherwise(lambda view: f"So speaks {view.system.split('.')[0].removeprefix('You are ')}."),
]
"""What the models say."""


# --- Step 1: Define Your Game State ---------------------------------------------------------------


class GamePhase(Enum):
    SETUP = "setup"
    PLAYER_TURN = "player_turn"
    CHALLENGE = "challenge"
    RESOLUTION = "resolution"
    GAME_OVER = "game_over"


@dataclass
class MyGame:
    players: list["Player"] = field(default_factory=list)
    current_player_idx: int = 0
    phase: GamePhase = GamePhase.SETUP
    _swarm: MAILSwarm | None = None
    task_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    scores: dict[str, int] = field(default_factory=dict)
    current_challenge: str | None = None

    @property
    def swarm(self) -> MAILSwarm:
        """What the guide's methods call ``self.swarm``."""
        assert self._swarm is not None
        return self._swarm

    # --- Step 6: Initialize the Game --------------------------------------------------------------

    @staticmethod
    def create(player_configs: list[dict]) -> "MyGame":
        game = MyGame()

        for config in player_configs:
            game.players.append(
                Player(
                    name=config["name"],
                    personality=config["personality"],
                )
            )

        player_names = [p.name for p in game.players]
        agents = [p.build_agent_template() for p in game.players]
        agents.insert(0, build_gamemaster_template(game, player_names))

        template = build_swarm(agents)
        swarm = template.instantiate({"user_token": "dummy"}, "MyGame")

        asyncio.create_task(swarm.run_continuous(mode="manual"))  # noqa: RUF006 - as documented

        game._swarm = swarm
        return game

    # --- Step 7: Implement Stepping Helpers -------------------------------------------------------

    async def step_gamemaster(self, payload: str = "") -> MAILMessage:
        await self.swarm.await_queue_empty()
        return await self.swarm.manual_step(
            task_id=self.task_id,
            target="GameMaster",
            response_targets=["all"],
            response_type="broadcast",
            payload=payload,
        )

    async def step_player(
        self, player_name: str, private: bool = False, payload: str = ""
    ) -> MAILMessage:
        await self.swarm.await_queue_empty()

        if private:
            targets = ["GameMaster"]
            resp_type = "response"
        else:
            targets = ["all"]
            resp_type = "broadcast"

        return await self.swarm.manual_step(
            task_id=self.task_id,
            target=player_name,
            response_targets=targets,
            response_type=resp_type,
            payload=payload,
        )

    # --- Step 8: Implement the Game Loop ----------------------------------------------------------

    async def run(self) -> str:
        await self.start_game()

        while not self.is_game_over():
            await self.run_round()

        return await self.announce_winner()

    async def start_game(self) -> None:
        self.phase = GamePhase.SETUP

        for player in self.players:
            self.scores[player.name] = 0

        player_names = [p.name for p in self.players]
        init_msg = self.swarm.build_message(
            subject="::init::",
            body=f"Game starting with: {', '.join(player_names)}",
            targets=["all"],
            sender_type="user",
            type="broadcast",
            task_id=self.task_id,
        )
        await self.swarm.submit_message_nowait(init_msg)

        await self.step_gamemaster(payload=f"Welcome the players: {', '.join(player_names)}")

    async def run_round(self) -> None:
        self.phase = GamePhase.CHALLENGE
        await self.step_gamemaster(payload="Use set_challenge, then announce what it is.")

        self.phase = GamePhase.PLAYER_TURN
        for player in self.players:
            await self.step_player(
                player.name,
                private=False,
                payload=f"The challenge is: {self.current_challenge}",
            )

        self.phase = GamePhase.RESOLUTION
        await self.step_gamemaster(
            payload=f"Judge: {self.current_challenge}\nUse score_points.\nSo far: {self.scores}"
        )

    def is_game_over(self) -> bool:
        return max(self.scores.values(), default=0) >= 10

    async def announce_winner(self) -> str:
        self.phase = GamePhase.GAME_OVER
        winner = max(self.scores, key=self.scores.get)

        await self.step_gamemaster(
            payload=f"The game is over! {winner} wins with {self.scores[winner]} points."
        )

        return winner


# --- Step 2: Define Player/Agent Structure --------------------------------------------------------


@dataclass
class Player:
    name: str
    personality: str
    llm: str = "openai/gpt-5-mini"

    def build_agent_template(self) -> MAILAgentTemplate:
        system_prompt = f"You are {self.name}. {self.personality}"

        return MAILAgentTemplate(
            name=self.name,
            factory=base_agent_factory,
            comm_targets=["GameMaster"],
            actions=[],
            agent_params={
                "llm": self.llm,
                "system": system_prompt,
                "user_token": "dummy",
                "use_proxy": False,
            },
            enable_entrypoint=True,
            can_complete_tasks=True,
        )


# --- Step 3: Define Game Master Actions -----------------------------------------------------------


class ScorePointsArgs(BaseModel):
    """Give points to somebody."""

    player_name: str = Field(description="Player to award points to")
    points: int = Field(description="Number of points to award")


async def score_points(game: "MyGame", args: dict) -> str:
    player = args["player_name"]
    points = args["points"]
    game.scores[player] = game.scores.get(player, 0) + points
    return f"Awarded {points} points to {player}. Total: {game.scores[player]}"


class SetChallengeArgs(BaseModel):
    """Say what has to be done."""

    challenge: str = Field(description="The challenge description")


async def set_challenge(game: "MyGame", args: dict) -> str:
    game.current_challenge = args["challenge"]
    return f"Challenge set: {args['challenge']}"


def get_gamemaster_actions(game: "MyGame") -> list[MAILAction]:
    return [
        MAILAction.from_pydantic_model(
            model=ScorePointsArgs,
            function=partial(score_points, game),
            name="score_points",
        ),
        MAILAction.from_pydantic_model(
            model=SetChallengeArgs,
            function=partial(set_challenge, game),
            name="set_challenge",
        ),
    ]


# --- Step 4: Create the Game Master Agent ---------------------------------------------------------


def build_gamemaster_template(game: "MyGame", player_names: list[str]) -> MAILAgentTemplate:
    system = f"{GAME_MASTER}. Use score_points(player_name, points), set_challenge(challenge)."

    actions = get_gamemaster_actions(game)

    return MAILAgentTemplate(
        name="GameMaster",
        factory=base_agent_factory,
        comm_targets=player_names,
        actions=actions,
        agent_params={
            "llm": "openai/gpt-5-mini",
            "system": system,
            "user_token": "dummy",
            "use_proxy": False,
        },
        enable_entrypoint=True,
        can_complete_tasks=True,
    )


# --- Step 5: Build the Swarm ----------------------------------------------------------------------


def build_swarm(agents: list[MAILAgentTemplate]) -> MAILSwarmTemplate:
    actions = []
    for agent in agents:
        actions.extend(agent.actions)

    return MAILSwarmTemplate(
        name="my_game",
        agents=agents,
        actions=actions,
        entrypoint=agents[0].name,
        enable_interswarm=False,
    )


# --- Step 9: Run the Game -------------------------------------------------------------------------


async def main() -> None:
    game = MyGame.create(
        [
            {"name": "Alice", "personality": "Witty and competitive"},
            {"name": "Bob", "personality": "Laid-back but strategic"},
            {"name": "Charlie", "personality": "Enthusiastic and creative"},
        ]
    )

    winner = await game.run()
    print(f"Winner: {winner}")


if __name__ == "__main__":
    asyncio.run(main())
