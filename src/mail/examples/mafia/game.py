"""A game of Mafia in manual mode, and the course that it takes.

The game decides who speaks when and who hears it; models only supply the words. What a player
chooses is read from those words by the game, recorded by the narrator's tools, and recorded by the
game itself where the narrator fails to, so no model can break a game. It always ends, in at most as
many rounds as it has players.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from mail.config.env import setting
from mail.db.store import Store
from mail.examples.mafia import cues
from mail.examples.mafia.agents import REFEREE, Agent, build_agent_swarm
from mail.examples.mafia.day import play_day
from mail.examples.mafia.narrator_tools import build_narrator_template
from mail.examples.mafia.night import play_night
from mail.examples.mafia.personas import pick_personas
from mail.examples.mafia.roles import calculate_roles
from mail.examples.mafia.rules import GamePhase, GameResult, Winner, winner_of
from mail.examples.mafia.speaking import CalledOffError, narrate
from mail.examples.mafia.table import SCRIPTED_NARRATOR, SCRIPTED_PLAYER, Table
from mail.examples.mafia.transcript import Transcript
from mail.llm.resolve import EXAMPLE_MODEL

__all__ = ["SCRIPTED_NARRATOR", "SCRIPTED_PLAYER", "Agent", "Game"]


@dataclass(eq=False, kw_only=True)
class Game(Table):
    """One game: `create` makes it, `run` plays it, `close` (or ``async with``) ends it.

    Attributes:
        called_off: Whether steps that failed ended the game.
        The others are those of `Table`.
    """

    called_off: bool = False

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
            interactive: See `Table`.

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
