"""A game of Mafia in manual mode, and the course that it takes.

The game decides who speaks when and who hears it; models only supply the words. What a player
chooses is read from those words by the game, recorded by the narrator's tools, and recorded by the
game itself where the narrator fails to, so no model can break a game. It always ends, in at most as
many rounds as it has players.
"""

import asyncio
import random
import textwrap
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from mail.api.agents import MAILAgentTemplate
from mail.api.swarm import MAILSwarm, MAILSwarmTemplate
from mail.config.env import setting
from mail.core.agents import AgentOutput, ToolChoice
from mail.core.tools.call import AgentToolCall
from mail.core.wire import MAILMessage
from mail.db.store import Store
from mail.errors import AgentError, ConfigError, ModelError, TaskFailed
from mail.examples.mafia import cues
from mail.examples.mafia.choices import Deed, Docket, read_choice
from mail.examples.mafia.narrator_tools import build_narrator_template
from mail.examples.mafia.prompts import (
    NARRATOR,
    create_agent_system_prompt,
    create_narrator_system_prompt,
)
from mail.examples.mafia.roles import DETECTIVE, DOCTOR, calculate_roles, pick_personas
from mail.examples.mafia.state import (
    Agent,
    GamePhase,
    GameResult,
    GameState,
    Winner,
    candidates_of,
    voted_out,
    winner_of,
)
from mail.llm.resolve import EXAMPLE_MODEL

__all__ = ["REFEREE", "SCRIPTED_NARRATOR", "SCRIPTED_PLAYER", "Agent", "Game", "Transcript"]


SCRIPTED_PLAYER: Final = "scripted/mail.examples.mafia.script:PLAYER"
SCRIPTED_NARRATOR: Final = "scripted/mail.examples.mafia.script:NARRATOR"
REFEREE: Final = "Referee"
"""The agent that closes the game's task; it has no model."""

ATTEMPTS: Final = 2
MOST_FAILURES: Final = 6
_FAILURES: Final = (AgentError, ModelError, TaskFailed, TimeoutError)

_WIDTH: Final = 96
_INDENT: Final = "    "


class CalledOffError(Exception):
    """So many steps failed in a row that the game cannot go on; the text says why."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """One message: who said what to whom; ``("all",)`` is everybody."""

    chapter: str
    speaker: str
    hearers: tuple[str, ...]
    text: str

    @property
    def public(self) -> bool:
        """Tell whether everybody heard it."""
        return self.hearers == ("all",)


class Transcript:
    """Collects what is said and hands it on as lines.

    Args:
        show: Takes each line; None keeps quiet.

    Attributes:
        spoken: All messages, in order.
    """

    def __init__(self, show: Callable[[str], object] | None = None) -> None:
        self.spoken: list[Spoken] = []
        self._show = show
        self._chapter = ""

    def chapter(self, title: str) -> None:
        """Begin a part of the game."""
        self._chapter = title
        self._line("")
        self._line(f"--- {title} {'-' * max(0, _WIDTH - len(title) - 5)}")

    def say(self, speaker: str, hearers: Sequence[str], text: str) -> None:
        """Add a message."""
        spoken = Spoken(self._chapter, speaker, tuple(hearers), text)
        self.spoken.append(spoken)
        self._line("")
        self._line(speaker if spoken.public else f"{speaker} [only to {', '.join(hearers)}]")
        for line in text.strip().splitlines():
            self._wrapped(line, _INDENT)

    def note(self, text: str) -> None:
        """Add a remark that nobody in the game hears."""
        for line in text.splitlines():
            self._wrapped(line, "  * ")

    def _wrapped(self, line: str, indent: str) -> None:
        for part in textwrap.wrap(line, _WIDTH - len(indent)) or [""]:
            self._line(indent + part)

    def _line(self, line: str) -> None:
        if self._show is not None:
            self._show(line.rstrip())


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
        called_off: Whether steps that failed ended the game.
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
            store: The store of the game's mail, or its URL; memory when None.
            print: Takes the transcript line by line.
            interactive: Ask a person before each step.

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
        narrator = build_narrator_template(game, game.narrator_llm)
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

    @property
    def swarm(self) -> MAILSwarm:
        """The game's swarm."""
        if self._swarm is None:
            raise ConfigError("this game has no swarm; make it with Game.create")
        return self._swarm

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

    async def close(self) -> None:
        """Stop the swarm. Calling it again is fine."""
        if self._swarm is not None:
            await self._swarm.shutdown()
        if self._runner is not None:
            await self._runner


async def narrate(game: Game, payload: str, targets: Sequence[str] | None = None) -> str:
    """Let the narrator speak to everybody, or to ``targets``; ``""`` when the model failed.

    Raises:
        CalledOffError: too many steps in a row have failed.
    """
    return await _words(game, NARRATOR, lambda: game.step_narrator(payload, targets))


async def speak(
    game: Game, player: Agent, payload: str, targets: Sequence[str] | None = None
) -> str:
    """Let a player speak to everybody, or to ``targets``; ``""`` when the model failed.

    Raises:
        CalledOffError: too many steps in a row have failed.
    """
    name = player.name
    return await _words(
        game, name, lambda: game.step_agent(name, targets is None, targets, payload)
    )


async def _words(game: Game, name: str, step: Callable[[], Awaitable[MAILMessage]]) -> str:
    for _ in range(ATTEMPTS):
        try:
            message = await step()
        except _FAILURES as error:
            reason = str(error) or "it took too long"
            game.failures += 1
            game.transcript.note(f"{name} gave no answer: {reason}")
            if game.failures >= MOST_FAILURES:
                raise CalledOffError(f"called off, models keep failing: {reason}") from None
        else:
            game.failures = 0
            return message["message"]["body"]
    return ""


async def hold_section(
    game: Game, deed: Deed, players: Sequence[Agent], names: Sequence[str]
) -> dict[str, str]:
    """Ask players for a choice, one after the other, and have the narrator record what they chose.

    Args:
        game: The game.
        deed: The purpose of the choice.
        players: The players who are asked; one without a choice is not.
        names: Whom they may choose; of the living only a doctor may choose themselves.

    Returns:
        Player to choice, in the order of the answers; without those who chose nobody.

    Raises:
        CalledOffError: too many steps in a row have failed.
    """
    choices: dict[str, list[str]] = {}
    for player in players:
        options = [name for name in names if deed is Deed.PROTECT or name != player.name]
        if options:
            choices[player.name] = options
    game.docket = docket = Docket(deed, choices)
    try:
        for name in choices:
            await _choose(game, game.get_player_by_name(name), docket)
        await _have_recorded(game, docket)
    finally:
        game.docket = None
    docket.settle()
    for name, choice in docket.recorded.items():
        by = " (the narrator missed it)" if name in docket.mended else ""
        game.transcript.note(f"{name}: {deed} {choice}{by}")
    game.mended.extend((deed, name) for name in docket.mended)
    return docket.recorded


async def _choose(game: Game, player: Agent, docket: Docket) -> None:
    """Ask one player; ask once more, in private, if the answer cannot be read."""
    section, options = cues.SECTIONS[docket.deed], docket.options[player.name]
    hearers = None if section.open else game.confidants(player, docket.deed)
    text = await speak(game, player, cues.ask_choice(game, player, docket), hearers)
    choice = read_choice(text, docket.deed, options)
    if choice is None:
        text = await speak(game, player, cues.ask_again(game, player, docket), [NARRATOR])
        choice = read_choice(text, docket.deed, options)
    docket.declare(player.name, choice)


async def _have_recorded(game: Game, docket: Docket) -> None:
    """Let the narrator record the choices; remind it once of what is missing."""
    announced = cues.SECTIONS[docket.deed].announced
    hearers = None if announced else list(docket.options)
    if docket.missing or announced:
        await narrate(game, cues.record(game, docket), hearers)
    if docket.missing:
        await narrate(game, cues.record_again(game, docket), hearers)


async def play_night(game: Game) -> None:
    """Let those who act at night choose.

    Raises:
        CalledOffError: too many steps in a row have failed.
    """
    game.phase = GamePhase.NIGHT
    game.transcript.chapter(f"Night {game.day_number}")
    await narrate(game, cues.nightfall(game))
    names = [player.name for player in game.living]
    protected = await hold_section(game, Deed.PROTECT, game.having(DOCTOR), names)
    game.protected_player = next(iter(protected.values()), None)
    looked_into = await hold_section(game, Deed.INVESTIGATE, game.having(DETECTIVE), names)
    for name in looked_into.values():
        game.findings[name] = game.get_player_by_name(name).is_mafia
    townspeople = [player.name for player in game.living if not player.is_mafia]
    game.night_votes = await hold_section(game, Deed.KILL, game.get_mafia_members(), townspeople)
    game.phase = GamePhase.RESOLUTION


async def play_day(game: Game, news: str) -> str:
    """Play a day; return the news that it leaves.

    Args:
        game: The game.
        news: The events of the night.

    Raises:
        CalledOffError: too many steps in a row have failed.
    """
    game.transcript.chapter(f"Day {game.day_number}")
    game.phase = GamePhase.DISCUSSION
    game.open_floor()
    await narrate(game, cues.dawn(game, news))
    for player in game.close_floor():
        await speak(game, player, cues.floor(game, player))
    game.phase = GamePhase.NOMINATION
    names = [player.name for player in game.living]
    candidates = candidates_of(await hold_section(game, Deed.NOMINATE, game.living, names))
    decision = "Nobody was nominated, so nobody has to go."
    if candidates:
        game.phase = GamePhase.VOTE
        outcast = voted_out(await hold_section(game, Deed.VOTE, game.living, candidates))
        decision = "No candidate got more votes than every other, so nobody has to go."
        if outcast is not None:
            decision = game.leave(outcast, "voted out of the town")
    game.phase = GamePhase.RESOLUTION
    await narrate(game, cues.verdict(game, decision))
    return decision


def build_agent_swarm(agents: Sequence[MAILAgentTemplate]) -> MAILSwarmTemplate:
    """Return the swarm of a game: the narrator and the players, and the referee."""
    referee = MAILAgentTemplate(
        name=REFEREE,
        factory=lambda **params: _close_task,
        comm_targets=[],
        actions=[],
        agent_params={},
        enable_entrypoint=True,
        can_complete_tasks=True,
    )
    return MAILSwarmTemplate(
        name="mafia",
        agents=[*agents, referee],
        entrypoint=NARRATOR,
        description="A game of Mafia, played step by step",
    )


async def _close_task(messages: list[dict[str, Any]], tool_choice: ToolChoice) -> AgentOutput:
    """Complete the task with the last line of the step's payload."""
    result = str(messages[-1]["content"]).rpartition("\n")[2]
    call = AgentToolCall(
        tool_name="task_complete",
        tool_args={"finish_message": result},
        tool_call_id="close_game",
        completion={"role": "assistant", "content": result},
    )
    return None, [call]
