"""A game of Mafia in manual mode: its swarm, the steps that agents take, and the course of it all.

The game decides who speaks when and who hears it; models only supply the words. What a player
chooses is read from those words by the game, recorded by the narrator's tools, and recorded by the
game itself where the narrator fails to, so no model can break a game. It always ends, in at most as
many rounds as it has players.
"""

import asyncio
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from mail.api.swarm import MAILSwarm
from mail.config.env import setting
from mail.core.wire import MAILMessage
from mail.db.store import Store
from mail.errors import ConfigError
from mail.examples.mafia import cues
from mail.examples.mafia.agents import (
    REFEREE,
    Agent,
    build_agent_swarm,
    build_narrator_template,
)
from mail.examples.mafia.day import play_day
from mail.examples.mafia.night import play_night
from mail.examples.mafia.personas import pick_personas
from mail.examples.mafia.prompts import (
    NARRATOR,
    create_agent_system_prompt,
    create_narrator_system_prompt,
)
from mail.examples.mafia.roles import calculate_roles
from mail.examples.mafia.rules import GamePhase, GameResult, Winner, winner_of
from mail.examples.mafia.speaking import CalledOffError, narrate
from mail.examples.mafia.state import GameState
from mail.examples.mafia.transcript import Transcript
from mail.llm.resolve import EXAMPLE_MODEL

__all__ = ["SCRIPTED_NARRATOR", "SCRIPTED_PLAYER", "Agent", "Game"]

SCRIPTED_PLAYER: Final = "scripted/mail.examples.mafia.script:PLAYER"
SCRIPTED_NARRATOR: Final = "scripted/mail.examples.mafia.script:NARRATOR"


@dataclass(eq=False, kw_only=True)
class Game(GameState):
    """One game: `create` makes it, `run` plays it, `close` (or ``async with``) ends it.

    Attributes:
        narrator_llm: The narrator's model.
        task_id: The task in which the game is played.
        transcript: Everything that was said, and who heard it.
        interactive: Ask a person before each step; they may add to its payload.
        ask: Asks that person.
        step_timeout: Seconds that one step may take, with all the narrator's tools.
        ctx_ratio: The ``dynamic_ctx_ratio`` of each step.
        failures: Steps that failed in a row.
        called_off: Whether they ended the game.
        The others are those of `GameState`.
    """

    narrator_llm: str = SCRIPTED_NARRATOR
    task_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    transcript: Transcript = field(default_factory=Transcript)
    interactive: bool = False
    ask: Callable[[str], str] = input
    step_timeout: float = 300.0
    ctx_ratio: float = 0.75
    failures: int = 0
    called_off: bool = False
    _swarm: MAILSwarm | None = None
    _runner: "asyncio.Task[None] | None" = None

    @staticmethod
    def create(
        n: int,
        valid_llms: Sequence[str] | None = None,
        *,
        seed: int | None = None,
        llm: str | None = None,
        store: Store | str | None = None,
        print: Callable[[str], object] | None = None,
        interactive: bool = False,
    ) -> "Game":
        """Deal out roles and personas and build the swarm; nothing runs yet.

        Args:
            n: The number of players, 4 to 20.
            valid_llms: The models from which each player's is drawn.
            seed: Makes the dealing repeatable, and a scripted game as a whole.
            llm: The narrator's model, and the players' unless ``valid_llms`` says otherwise.
                Without either, ``MAIL_LLM`` of the environment; without that, everybody follows a
                script and no provider is needed.
            store: Where the game's mail is kept: a store, or its URL; memory when None.
            print: Takes the transcript line by line.
            interactive: See `Game`.

        Raises:
            ConfigError: there is no game for so many players, or a model or store is wrong.
        """
        roles = calculate_roles(n)
        rng = random.Random(seed)  # noqa: S311 - a game, not a secret
        rng.shuffle(roles)
        llm = llm or (None if valid_llms else setting(EXAMPLE_MODEL))
        models = list(valid_llms or ()) or [llm or SCRIPTED_PLAYER]
        cast = zip(pick_personas(n, rng), roles, strict=True)
        game = Game(
            players=[Agent(persona, role, rng.choice(models)) for persona, role in cast],
            narrator_llm=llm or (models[0] if valid_llms else SCRIPTED_NARRATOR),
            transcript=Transcript(print),
            interactive=interactive,
        )
        narrator = build_narrator_template(game, [player.name for player in game.players])
        agents = [narrator, *(player.build_agent_template() for player in game.players)]
        game._swarm = build_agent_swarm(agents).instantiate(
            {"user_token": "dummy"}, "MafiaGame", print_llm_streams=False, store=store
        )
        return game

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def swarm(self) -> MAILSwarm:
        """The game's swarm."""
        if self._swarm is None:
            raise ConfigError("this game has no swarm; make it with Game.create")
        return self._swarm

    # --- steps --------------------------------------------------------------------------------

    async def start_game(self) -> None:
        """Start the swarm in manual mode and open the game's task. Calling it again is fine.

        Raises:
            StoreError: the store cannot be opened or written.
        """
        if self._runner is not None:
            return
        self._runner = asyncio.create_task(self.swarm.run_continuous(mode="manual"))
        opening = self.swarm.build_message(
            subject="::init::",
            body=f"A game of Mafia begins: {', '.join(p.name for p in self.players)}.",
            targets=["all"],
            sender_type="user",
            type="broadcast",
            task_id=self.task_id,
        )
        await self.swarm.submit_message_nowait(opening)

    async def step_narrator(
        self, payload: str = "", targets: Sequence[str] | None = None
    ) -> MAILMessage:
        """Let the narrator act and speak: to everybody, or to ``targets`` only.

        Raises:
            StepFailed: the narrator's model failed.
            TimeoutError: the step took longer than ``step_timeout``.
        """
        system = create_narrator_system_prompt()
        return await self._step(NARRATOR, targets or ["all"], payload, self.narrator_llm, system)

    async def step_agent(
        self,
        agent_name: str,
        broadcast: bool = False,
        targets: Sequence[str] | None = None,
        payload: str = "",
    ) -> MAILMessage:
        """Let a player speak: to everybody, to ``targets``, or to the narrator alone.

        Raises:
            ConfigError: nobody has that name, or the player has left the game.
            StepFailed, TimeoutError: as `step_narrator`.
        """
        player = self.get_player_by_name(agent_name)
        if not player.alive:
            raise ConfigError(f"'{agent_name}' has left the game and stays silent")
        hearers = ["all"] if broadcast else list(targets or [NARRATOR])
        system = create_agent_system_prompt(player.persona, player.role, self.partners(player))
        return await self._step(agent_name, hearers, payload, player.llm, system)

    async def _step(
        self, target: str, hearers: Sequence[str], payload: str, llm: str, system: str
    ) -> MAILMessage:
        await self.start_game()
        if self.interactive:
            payload += await asyncio.to_thread(self._interactive_wait, target, payload)
        # One message to several, so that each of them sees who else has it.
        alone = len(hearers) == 1 and hearers[0] != "all"
        async with asyncio.timeout(self.step_timeout):
            await self.swarm.await_queue_empty()
            message = await self.swarm.manual_step(
                task_id=self.task_id,
                target=target,
                response_targets=list(hearers),
                response_type="response" if alone else "broadcast",
                payload=payload,
                dynamic_ctx_ratio=self.ctx_ratio,
                _llm=llm,
                _system=system,
            )
        self.transcript.say(target, hearers, message["message"]["body"])
        return message

    def _interactive_wait(self, agent_name: str, payload: str) -> str:
        """Show a person the step to come; return what they add to its payload."""
        self.transcript.note(f"Next: {agent_name}, with this payload:\n{payload}")
        try:
            extra = self.ask("Add to the payload, or press Enter: ").strip()
        except EOFError:
            return ""
        return f"\n{extra}" if extra else ""

    # --- the course of the game ---------------------------------------------------------------

    async def run(self) -> GameResult:
        """Play the game to its end.

        Returns:
            The winner, or a draw: when the rounds are used up, or when models fail so often that
            the game is called off. A game that was played already only tells how it ended.

        Raises:
            StoreError, ShuttingDown: the swarm cannot go on.
            TaskError: somebody else ended the game's task.
        """
        if self.result is not None:
            return self.result
        cast = "; ".join(f"{p.name} ({p.role.name})" for p in self.players)
        self.transcript.note(f"The cast: {cast}")
        try:
            news, result = await self._play()
            self.phase = GamePhase.GAME_OVER
            self.transcript.chapter("The end")
            await narrate(self, cues.finale(self, result, news))
        except CalledOffError as error:
            self.called_off = True
            result = GameResult(Winner.DRAW, str(error), self.day_number)
        self.phase, self.result = GamePhase.GAME_OVER, result
        ending = f"Winner: {result.winner} ({result.reason}; round {result.day})."
        self.transcript.note(ending)
        await self.swarm.manual_step(self.task_id, REFEREE, payload=ending)
        return result

    async def _play(self) -> tuple[str, GameResult]:
        """Play rounds until somebody has won; return the last news and the result."""
        self.transcript.chapter("The town gathers")
        await narrate(self, cues.gathering(self))
        news = "nothing yet"
        for _ in self.players:
            news = await self.run_night_phase()
            if self._won() is None:
                news = await play_day(self, news)
            result = self._won()
            if result is not None:
                return news, result
        reason = f"nobody has won after {self.day_number} rounds"
        return news, GameResult(Winner.DRAW, reason, self.day_number)

    async def run_night_phase(self) -> str:
        """Play the next night, and return the news that it leaves.

        Raises:
            CalledOffError: too many steps in a row have failed.
        """
        self.day_number += 1
        await play_night(self)
        return self.resolve_night_actions()

    def _won(self) -> GameResult | None:
        result = winner_of(self.players)
        return result and replace(result, day=self.day_number)

    async def close(self) -> None:
        """Stop the swarm. Calling it again is fine."""
        if self._swarm is not None:
            await self._swarm.shutdown()
        if self._runner is not None:
            await self._runner
