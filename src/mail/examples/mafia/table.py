"""The table at which a game is played: its swarm, and the steps that agents take one by one."""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mail.api.swarm import MAILSwarm
from mail.core.wire import MAILMessage
from mail.errors import ConfigError
from mail.examples.mafia.prompts import (
    NARRATOR,
    create_agent_system_prompt,
    create_narrator_system_prompt,
)
from mail.examples.mafia.state import GameState
from mail.examples.mafia.transcript import Transcript

SCRIPTED_PLAYER: Final = "scripted/mail.examples.mafia.script:PLAYER"
SCRIPTED_NARRATOR: Final = "scripted/mail.examples.mafia.script:NARRATOR"


@dataclass(eq=False, kw_only=True)
class Table(GameState):
    """A game whose agents can be asked to speak.

    Attributes:
        narrator_llm: The narrator's model.
        task_id: The task in which the game is played.
        transcript: Everything that was said, and who heard it.
        interactive: Ask a person before each step; they may add to its payload.
        ask: Asks that person.
        step_timeout: Seconds that one step may take, with all the narrator's tools.
        ctx_ratio: The ``dynamic_ctx_ratio`` of each step.
        failures: Steps that failed in a row.
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
    _swarm: MAILSwarm | None = None
    _runner: "asyncio.Task[None] | None" = None

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
