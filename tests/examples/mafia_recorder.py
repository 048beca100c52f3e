"""Watching a scripted game of Mafia: what each agent's model was shown, and what it said.

Every text that a model says gets a marker of its own, so that it can be found wherever it went.
"""

import itertools
import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from mail.core.call_context import current_call
from mail.core.events import TaskEvent
from mail.examples.mafia import script
from mail.examples.mafia.game import REFEREE
from mail.llm.script import Maker, Say, Script, Step, run_script
from mail.llm.script_view import ScriptView

__all__ = ["Look", "Mail", "Recorder", "mail_of", "strays"]


@dataclass(frozen=True)
class Look:
    """One call of a model: whose, everything that it was shown, and what it said."""

    agent: str
    system: str
    messages: str
    payload: str
    said: str

    @property
    def shown(self) -> str:
        """The system prompt and the whole history."""
        return f"{self.system}\n{self.messages}"


@dataclass
class Recorder:
    """Stands between the runtime and the scripts, in their place.

    ``players`` and ``narrator`` may be replaced before the game begins.
    """

    players: Script = script.PLAYER
    narrator: Script = script.NARRATOR
    looks: list[Look] = field(default_factory=list)
    _marks: Any = field(default_factory=lambda: itertools.count(1))

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take the scripts' place."""
        monkeypatch.setattr(script, "PLAYER", self._watched(lambda: self.players))
        monkeypatch.setattr(script, "NARRATOR", self._watched(lambda: self.narrator))

    def of(self, agent: str) -> list[Look]:
        """Return an agent's calls."""
        return [look for look in self.looks if look.agent == agent]

    def shown_to(self, agent: str) -> str:
        """Return everything that an agent's model was ever shown."""
        return "\n".join(look.shown for look in self.of(agent))

    @property
    def agents(self) -> set[str]:
        """The agents whose models were called."""
        return {look.agent for look in self.looks}

    def _watched(self, chosen: Any) -> Maker:
        async def watched(view: ScriptView) -> list[Step]:
            steps = [self._marked(step) for step in await run_script(chosen(), view)]
            said = "".join(step.text for step in steps if isinstance(step, Say))
            self.looks.append(_look(view, said))
            return steps

        return watched

    def _marked(self, step: Step) -> Step:
        if isinstance(step, Say) and step.text:
            return replace(step, text=f"#{next(self._marks)}# {step.text}")
        return step


def _look(view: ScriptView, said: str) -> Look:
    messages = json.dumps(view._messages[:], ensure_ascii=False)
    steps = [mail.body for mail in view.mails if not mail.sender]
    return Look(current_call().agent, view.system, messages, steps[-1], said)


@dataclass(frozen=True)
class Mail:
    """A message between agents, as the task's events have it."""

    sender: str
    hearers: frozenset[str]
    mark: str
    body: str

    @property
    def private(self) -> bool:
        """Tell whether it was meant for some agents only."""
        return "all" not in self.hearers


def mail_of(events: list[TaskEvent]) -> list[Mail]:
    """Return all that the players and the narrator said, in order."""
    found = []
    for event in events:
        if event.kind != "new_message":
            continue
        message = event.extra["full_message"]["message"]
        sender = message["sender"]["address"]
        if message["sender"]["address_type"] != "agent" or sender == REFEREE:
            continue
        to = message.get("recipients") or [message["recipient"]]
        mark = message["body"].partition(" ")[0]
        hearers = frozenset(address["address"] for address in to)
        found.append(Mail(sender, hearers, mark, message["body"]))
    return found


def strays(mail: list[Mail], recorder: Recorder) -> list[tuple[str, str]]:
    """Return each (mark, agent) where an agent was shown a private message of others."""
    return [
        (message.mark, agent)
        for message in mail
        for agent in sorted(recorder.agents)
        if message.private
        and agent not in {message.sender, *message.hearers}
        and message.mark in recorder.shown_to(agent)
    ]
