"""The narrator's tools: what players chose becomes the state of the game through these.

Each tool belongs to one section of the game, and records only what a player really chose. Anything
else is refused with a text that tells the narrator what to do (`NarratorError`).
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from pydantic import BaseModel, Field

from mail.api.actions import MAILAction
from mail.api.agents import MAILAgentTemplate
from mail.examples.mafia.choices import Deed, NarratorError
from mail.examples.mafia.prompts import NARRATOR, create_narrator_system_prompt
from mail.examples.mafia.state import GameState, build_model_agent

__all__ = ["NARRATOR_TOOLS", "NarratorError", "get_narrator_actions"]

Tool = Callable[[GameState, dict[str, Any]], Awaitable[str]]


class DoctorProtectArgs(BaseModel):
    """Record whom the doctor protects tonight."""

    target_name: str = Field(description="The player whom the doctor chose.")


class DetectiveInvestigateArgs(BaseModel):
    """Record whom the detective investigates tonight, and learn what there is to find."""

    target_name: str = Field(description="The player whom the detective chose.")


class MafiaVoteKillArgs(BaseModel):
    """Record whom one member of the mafia votes to kill tonight."""

    mafia_name: str = Field(description="The member of the mafia who votes.")
    target_name: str = Field(description="The player whom that member wants dead.")


class SelectSpeakerArgs(BaseModel):
    """Put a player on today's list of speakers, behind those already on it."""

    player_name: str = Field(description="A living player who is not on the list yet.")


class AddNominationArgs(BaseModel):
    """Record whom a player nominates for today's vote."""

    player_name: str = Field(description="The player who nominates.")
    nominee_name: str = Field(description="The player who is nominated.")


class AddVoteArgs(BaseModel):
    """Record a player's vote."""

    voter_name: str = Field(description="The player who votes.")
    candidate_name: str = Field(description="The candidate who gets the vote.")


async def doctor_protect(game: GameState, args: dict[str, Any]) -> str:
    """Record the doctor's choice."""
    doctor = game.asked_alone(Deed.PROTECT)
    game.protected_player = target = game.record(Deed.PROTECT, doctor, args["target_name"])
    return f"Recorded: {doctor} (the doctor) protects {target} tonight."


async def detective_investigate(game: GameState, args: dict[str, Any]) -> str:
    """Record the detective's choice and tell the finding."""
    detective = game.asked_alone(Deed.INVESTIGATE)
    target = game.record(Deed.INVESTIGATE, detective, args["target_name"])
    return f"Recorded. {detective} (the detective) finds out: {game.finding(target)}"


async def mafia_vote_kill(game: GameState, args: dict[str, Any]) -> str:
    """Record one mafioso's vote and tell how the votes stand."""
    target = game.record(Deed.KILL, args["mafia_name"], args["target_name"])
    return f"Recorded a vote to kill {target}. {game.standing(Deed.KILL)}"


async def select_speaker(game: GameState, args: dict[str, Any]) -> str:
    """Give a player the floor."""
    name = game.select_speaker(args["player_name"])
    return f"{name} will speak. So far: {', '.join(game.speakers)}."


async def add_nomination(game: GameState, args: dict[str, Any]) -> str:
    """Record a nomination and tell how they stand."""
    nominee = game.record(Deed.NOMINATE, args["player_name"], args["nominee_name"])
    return f"{nominee} is nominated. {game.standing(Deed.NOMINATE)}"


async def add_vote(game: GameState, args: dict[str, Any]) -> str:
    """Record a vote and tell how they stand."""
    candidate = game.record(Deed.VOTE, args["voter_name"], args["candidate_name"])
    return f"Recorded a vote for {candidate}. {game.standing(Deed.VOTE)}"


NARRATOR_TOOLS: Final[Mapping[str, tuple[type[BaseModel], Tool]]] = MappingProxyType(
    {
        "doctor_protect": (DoctorProtectArgs, doctor_protect),
        "detective_investigate": (DetectiveInvestigateArgs, detective_investigate),
        "mafia_vote_kill": (MafiaVoteKillArgs, mafia_vote_kill),
        "select_speaker": (SelectSpeakerArgs, select_speaker),
        "add_nomination": (AddNominationArgs, add_nomination),
        "add_vote": (AddVoteArgs, add_vote),
    }
)


def get_narrator_actions(game: GameState) -> list[MAILAction]:
    """Return the narrator's tools, bound to one game."""
    return [
        MAILAction.from_pydantic_model(
            model=model,
            function=partial(function, game),
            name=name,
            idempotent=True,  # what is recorded already stays as it is
        )
        for name, (model, function) in NARRATOR_TOOLS.items()
    ]


def build_narrator_template(game: GameState, llm: str) -> MAILAgentTemplate:
    """Return the narrator, with the tools of this game."""
    names = [player.name for player in game.players]
    tools = get_narrator_actions(game)
    return build_model_agent(NARRATOR, llm, create_narrator_system_prompt(), names, tools)
