"""The Python blocks of manual-mail-game-guide.md, heading by heading, against the fake provider.

The games that the guide builds are in guide_game.py (the nine steps) and guide_mafia.py. Its
patterns, tips and quick reference are in test_game_guide_patterns.py.
"""

import asyncio
import inspect
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, get_args

import pytest

from mail import MAILAction, MAILSwarm
from mail.core.render import PRIMER
from mail.core.runtime.turn import ResponseType
from mail.examples.mafia.prompts import create_narrator_system_prompt
from mail.factories import base_agent_factory
from mail.llm import call, otherwise
from tests.documents import guide_game, guide_mafia
from tests.documents.conftest import Keep
from tests.documents.guide_game import GamePhase, MyGame, Player
from tests.documents.support import NAMES, buffered, missing_tests, newest_text, one_agent_swarm
from tests.support.provider import FakeProvider

BLOCKS = {
    "Continuous Mode (Default)": "test_continuous_mode",
    "Manual Mode (For Games)": "test_manual_mode",
    "1. Game Initialization": "test_mafia_game_initialization",
    "2. The manual_step Function": "test_manual_step_has_the_documented_signature",
    "3. Stepping Agents in the Game": "test_mafia_stepping_agents",
    "4. Game Loop Example: Night Phase": "test_mafia_night_phase",
    "5. Defining Actions (Tools)": "test_mafia_defining_actions",
    "Step 1: Define Your Game State": "test_step_1_game_state",
    "Step 2: Define Player/Agent Structure": "test_step_2_player",
    "Step 3: Define Game Master Actions": "test_step_3_gamemaster_actions",
    "Step 4: Create the Game Master Agent": "test_steps_4_to_6_game_is_initialized",
    "Step 5: Build the Swarm": "test_steps_4_to_6_game_is_initialized",
    "Step 6: Initialize the Game": "test_steps_4_to_6_game_is_initialized",
    "Step 7: Implement Stepping Helpers": "test_step_7_stepping_helpers",
    "Step 8: Implement the Game Loop": "test_step_8_game_is_played_to_its_winner",
    "Step 9: Run the Game": "test_step_9_game_runs_as_a_program",
    "MAILSwarm.manual_step()": "test_manual_step_has_the_documented_signature",
    "MAILSwarm.build_message()": "test_build_message",
    "MAILSwarm.submit_message_nowait()": "test_submit_message_nowait_and_await_queue_empty",
    "MAILSwarm.await_queue_empty()": "test_submit_message_nowait_and_await_queue_empty",
    "MAILAction.from_pydantic_model()": "test_from_pydantic_model",
}
"""The guide's headings with Python blocks, in its order, and the tests that cover them."""

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.filterwarnings("ignore:base_agent_factory is deprecated")


@pytest.fixture
async def mafia(provider: FakeProvider, keep: Keep) -> guide_mafia.Game:
    """The guide's game of Mafia, before its first step."""
    provider.script = guide_mafia.SCRIPT
    made = guide_mafia.Game.create(8)
    keep(made.swarm)
    return made


def test_table_names_every_test() -> None:
    assert missing_tests(BLOCKS, sys.modules[__name__]) == set()


# --- the two modes --------------------------------------------------------------------------------


async def test_continuous_mode(provider: FakeProvider) -> None:
    provider.script = [otherwise(call("task_complete", finish_message="Done."))]
    swarm = one_agent_swarm()

    async def play() -> None:
        await swarm.run_continuous(mode="continuous")

    playing = asyncio.create_task(play())
    response, _ = await swarm.post_message("Hello")
    assert response["message"]["body"] == "Done."
    await swarm.shutdown()
    await playing


async def test_manual_mode(provider: FakeProvider) -> None:
    swarm = one_agent_swarm()
    ready = asyncio.Event()

    async def play() -> None:
        running = swarm.run_continuous(mode="manual")
        ready.set()
        await running

    playing = asyncio.create_task(play())
    await ready.wait()
    message = swarm.build_message("::init::", "Begin", ["all"], type="broadcast", task_id="t")
    await swarm.submit_message_nowait(message)
    await swarm.await_queue_empty()
    assert provider.requests == []
    assert buffered(swarm, "t", "AgentName") == [("GameID", "Begin")]
    await swarm.shutdown()
    await playing


# --- Mafia ----------------------------------------------------------------------------------------


async def test_mafia_game_initialization(provider: FakeProvider, mafia: guide_mafia.Game) -> None:
    assert mafia.swarm.user_id == "MafiaGame"
    assert len(mafia.players) == 8
    assert mafia.swarm.agent_names[-1] == "Narrator"
    narrator = mafia.swarm.agents[-1]
    assert narrator.comm_targets == [player.persona.name for player in mafia.players]
    await mafia.swarm.await_queue_empty()
    assert provider.requests == []


async def test_mafia_stepping_agents(provider: FakeProvider, mafia: guide_mafia.Game) -> None:
    said = await mafia.step_narrator(payload="=== NIGHT 1 ===")
    assert said["msg_type"] == "broadcast"
    told = provider.requests[-1].system
    assert told == f"{create_narrator_system_prompt()}\n\n{PRIMER}"  # _system

    doctor = mafia.players[2].persona.name
    answer = await mafia.step_agent(doctor, payload="Choose one player to protect")
    assert answer["msg_type"] == "response"
    assert answer["message"]["recipient"]["address"] == "Narrator"
    assert f"You are {doctor}" in provider.requests[-1].system

    mafia.players[2].llm = "openai/gpt-5-nano"
    aloud = await mafia.step_agent(doctor, broadcast=True, payload="Say something")
    assert aloud["msg_type"] == "broadcast"
    assert provider.requests[-1].model == "gpt-5-nano"  # _llm
    assert provider.requests[0].model == "gpt-5-mini"


async def test_mafia_night_phase(provider: FakeProvider, mafia: guide_mafia.Game) -> None:
    await mafia.run_night_phase()
    assert mafia.phase is guide_mafia.GamePhase.NIGHT
    assert (mafia.protected_player, mafia.investigated_player) == ("Esther", "Agnes")
    assert mafia.votes == {"Agnes": "Esther", "Bruno": "Esther"}
    assert mafia.victim is None  # the doctor guarded her
    assert {seen.status for seen in provider.requests} == {200}

    def shown(name: str) -> str:
        prompt = "You are the Narrator" if name == "Narrator" else f"You are {name},"
        seen = [each for each in provider.requests if each.system.startswith(prompt)]
        return "\n".join(newest_text(each) for each in seen)

    assert "I protect Esther" in shown("Narrator")
    for name in ("Agnes", "Bruno", "Dmitri"):
        assert "I protect" not in shown(name)
    vote = "<private_message>\n<from>Agnes</from>\nI kill Esther\n</private_message>"
    assert vote in shown("Narrator")
    assert vote in shown("Bruno")  # the mafia see each other
    assert "I kill" not in shown("Clara") + shown("Dmitri")
    public = {"Night falls.", "The detective may wake.", "The mafia may wake.", "The sun rises."}
    for villager in ("Esther", "Felix", "Greta", "Hamid"):
        assert {body for _, body in buffered(mafia.swarm, mafia.task_id, villager)} == public


async def test_mafia_defining_actions(mafia: guide_mafia.Game) -> None:
    actions = guide_mafia.get_narrator_actions(mafia)
    assert actions[0].name == "doctor_protect"
    told = await actions[0].function({"target_name": "Greta"})
    assert told == "Doctor protected Greta for the night"
    assert mafia.protected_player == "Greta"
    [narrator] = [agent for agent in mafia.swarm.agents if agent.name == "Narrator"]
    assert [each.name for each in narrator.actions] == [each.name for each in actions]


# --- the nine steps -------------------------------------------------------------------------------


def test_step_1_game_state() -> None:
    one, two = MyGame(), MyGame()
    assert (one.phase, one.scores, one.current_challenge) == (GamePhase.SETUP, {}, None)
    assert one.task_id != two.task_id
    assert uuid.UUID(one.task_id)


async def test_step_2_player() -> None:
    template = Player("Alice", "Witty and competitive").build_agent_template()
    assert template.factory is base_agent_factory
    with pytest.warns(DeprecationWarning, match="base_agent_factory is deprecated"):
        agent = template.instantiate({"user_token": "dummy"})
    assert agent.comm_targets == ["GameMaster"]
    assert agent.enable_entrypoint
    assert agent.can_complete_tasks
    assert agent.agent_params["system"].startswith("You are Alice. Witty")


async def test_step_3_gamemaster_actions() -> None:
    game = MyGame()
    score, challenge = guide_game.get_gamemaster_actions(game)
    assert (score.name, challenge.name) == ("score_points", "set_challenge")
    assert score.description == "Give points to somebody."
    award = {"player_name": "Alice", "points": 4}
    assert await score.function(award) == "Awarded 4 points to Alice. Total: 4"
    assert await score.function(award) == "Awarded 4 points to Alice. Total: 8"
    assert await challenge.function({"challenge": "Rhyme"}) == "Challenge set: Rhyme"
    assert (game.scores, game.current_challenge) == ({"Alice": 8}, "Rhyme")


async def test_steps_4_to_6_game_is_initialized(provider: FakeProvider, game: MyGame) -> None:
    swarm = game.swarm
    assert (swarm.name, swarm.entrypoint, swarm.user_id) == ("my_game", "GameMaster", "MyGame")
    assert swarm.agent_names == ["GameMaster", *NAMES]
    assert [action.name for action in swarm.actions] == ["score_points", "set_challenge"]
    assert swarm.agents[0].comm_targets == list(NAMES)
    await game.step_gamemaster()
    [asked] = provider.requests
    assert {"score_points", "set_challenge"} <= set(asked.tool_names)


async def test_step_7_stepping_helpers(provider: FakeProvider, game: MyGame) -> None:
    aloud = await game.step_gamemaster(payload="Welcome the players")
    assert (aloud["msg_type"], aloud["message"]["body"]) == ("broadcast", "Welcome to the game!")
    public = await game.step_player("Alice", private=False, payload="Speak")
    assert public["msg_type"] == "broadcast"
    secret = await game.step_player("Bob", private=True, payload="Whisper")
    assert secret["msg_type"] == "response"

    whispered = ("Bob", "So speaks Bob.")
    assert whispered in buffered(game.swarm, game.task_id, "GameMaster")
    for name in ("Alice", "Charlie", "David"):
        assert whispered not in buffered(game.swarm, game.task_id, name)
    await game.step_gamemaster(payload="Go on")
    text = newest_text(provider.requests[-1])
    assert "<public_message>\n<from>Alice</from>\nSo speaks Alice.\n</public_message>" in text
    assert "<private_message>\n<from>Bob</from>\nSo speaks Bob.\n</private_message>" in text
    assert text.endswith("Go on")


async def test_step_8_game_is_played_to_its_winner(provider: FakeProvider, game: MyGame) -> None:
    winner = await game.run()
    assert winner == "Alice"
    assert game.scores == {"Alice": 10, "Bob": 6, "Charlie": 0, "David": 0}
    assert game.phase is GamePhase.GAME_OVER
    assert game.current_challenge == "A haiku about rain"

    assert {seen.status for seen in provider.requests} == {200}
    david = [seen for seen in provider.requests if seen.system.startswith("You are David")]
    assert len(david) == 2  # two rounds
    first = newest_text(david[0])
    assert first.startswith("<public_message>\n<from>MyGame</from>\nGame starting with: Alice,")
    for heard in ("Welcome to the game!", "Let us hear your verses!", "So speaks Charlie."):
        assert first.count(heard) == 1
    assert first.endswith("The challenge is: A haiku about rain")
    assert "Welcome to the game!" not in newest_text(david[1])  # each message is shown once


def test_step_9_game_runs_as_a_program(tmp_path: Path) -> None:
    program = inspect.getsource(guide_game)
    adapted = program.replace('"openai/gpt-5-mini"', '"scripted/__main__:SCRIPT"')
    (tmp_path / "my_game.py").write_text(adapted)
    command = [sys.executable, "my_game.py"]
    ran = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["Winner: Alice"]
    assert "Traceback" not in ran.stderr


# --- API Reference --------------------------------------------------------------------------------


def _parameters(function: Any) -> dict[str, Any]:
    """Return a function's parameters, without ``self``, and their defaults."""
    found = inspect.signature(function).parameters
    return {name: each.default for name, each in found.items() if name != "self"}


REQUIRED = inspect.Parameter.empty


def test_manual_step_has_the_documented_signature() -> None:
    assert inspect.iscoroutinefunction(MAILSwarm.manual_step)
    assert list(_parameters(MAILSwarm.manual_step).items()) == [
        ("task_id", REQUIRED),
        ("target", REQUIRED),
        ("response_targets", None),
        ("response_type", "broadcast"),
        ("payload", None),
        ("dynamic_ctx_ratio", 0.0),
        ("_llm", None),
        ("_system", None),
    ]
    assert get_args(ResponseType) == ("broadcast", "response", "request")


async def test_build_message(game: MyGame) -> None:
    assert list(_parameters(MAILSwarm.build_message).items()) == [
        ("subject", REQUIRED),
        ("body", REQUIRED),
        ("targets", REQUIRED),
        ("sender_type", "user"),
        ("type", "request"),
        ("task_id", None),
    ]
    for kind in ("request", "response", "broadcast", "interrupt"):
        for sender in ("admin", "agent", "user"):
            message = game.swarm.build_message("s", "b", ["Alice"], sender, kind, "t")
            assert message["msg_type"] == kind
            assert message["message"]["sender"]["address_type"] == sender
            assert message["message"]["task_id"] == "t"


async def test_submit_message_nowait_and_await_queue_empty(
    provider: FakeProvider, game: MyGame
) -> None:
    message = game.swarm.build_message("s", "Hello", ["all"], type="broadcast", task_id="t")
    assert await game.swarm.submit_message_nowait(message) is None
    assert await game.swarm.await_queue_empty() is None
    assert provider.requests == []
    for name in game.swarm.agent_names:
        assert buffered(game.swarm, "t", name) == [("MyGame", "Hello")]


async def test_from_pydantic_model() -> None:
    parameters = list(_parameters(MAILAction.from_pydantic_model).items())
    assert parameters[:4] == [
        ("model", REQUIRED),
        ("function_str", None),  # or ``function``; one of them is required
        ("name", None),
        ("description", None),
    ]
    with pytest.raises(TypeError, match="function_str"):
        MAILAction.from_pydantic_model(guide_game.ScorePointsArgs)
    named = MAILAction.from_pydantic_model(
        guide_game.ScorePointsArgs, function=lambda args: "noted", name="note"
    )
    assert await named.function({"player_name": "Alice", "points": 1}) == "noted"
    action = MAILAction.from_pydantic_model(
        guide_game.ScorePointsArgs, lambda args: "noted", name="note", description="Note it"
    )
    assert (action.name, action.description) == ("note", "Note it")
    assert await action.function({"player_name": "Alice", "points": 1}) == "noted"
