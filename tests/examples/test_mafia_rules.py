"""The rules of Mafia without any mail: roles, choices, votes, and what the narrator's tools do."""

import random
from typing import Any

import pytest

from mail.errors import ConfigError, ToolError
from mail.examples.mafia.choices import NOBODY, Deed, Docket, NarratorError, read_choice
from mail.examples.mafia.narrator_tools import NARRATOR_TOOLS, get_narrator_actions
from mail.examples.mafia.prompts import NARRATOR, create_agent_system_prompt
from mail.examples.mafia.roles import (
    DETECTIVE,
    DOCTOR,
    MAFIA,
    MAX_PLAYERS,
    PERSONAS,
    VILLAGER,
    Role,
    calculate_roles,
    pick_personas,
)
from mail.examples.mafia.state import (
    Agent,
    GamePhase,
    GameState,
    Winner,
    candidates_of,
    kill_target,
    voted_out,
    winner_of,
)

NAMES = ["Agnes", "Bruno", "Clara", "Dmitri"]


def _state(*roles: Role) -> GameState:
    """Return a game of Agnes, Bruno, Clara, … with these roles."""
    players = [Agent(p, role, "none") for p, role in zip(PERSONAS, roles, strict=False)]
    return GameState(players=players)


# --- roles and personas -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("players", "mafia"), [(4, 1), (5, 1), (7, 1), (8, 2), (11, 2), (12, 3), (16, 4), (20, 5)]
)
def test_one_player_in_four_is_mafia(players: int, mafia: int) -> None:
    roles = calculate_roles(players)
    assert len(roles) == players
    assert roles.count(MAFIA) == mafia
    assert roles.count(DOCTOR) == roles.count(DETECTIVE) == 1
    assert roles.count(VILLAGER) == players - mafia - 2


@pytest.mark.parametrize("players", [-1, 0, 3, 21])
def test_too_few_or_too_many_players_are_refused(players: int) -> None:
    with pytest.raises(ConfigError, match=f"4 to 20 players, got {players}"):
        calculate_roles(players)


def test_there_is_a_persona_for_everybody_and_no_name_is_within_another() -> None:
    names = [persona.name for persona in PERSONAS]
    assert len(set(names)) == len(names) == MAX_PLAYERS
    assert not [(a, b) for a in [*names, NARRATOR] for b in names if a != b and a in b]
    drawn = pick_personas(8, random.Random(3))
    assert len(set(drawn)) == 8
    assert drawn == pick_personas(8, random.Random(3))


def test_only_the_prompt_of_a_mafioso_names_partners() -> None:
    mafioso = create_agent_system_prompt(PERSONAS[0], MAFIA, ["Bruno"])
    assert "Your secret role: Mafia." in mafioso
    assert "Your partners in the mafia: Bruno." in mafioso
    assert "none" in create_agent_system_prompt(PERSONAS[0], MAFIA)
    for role in (DOCTOR, DETECTIVE, VILLAGER):
        prompt = create_agent_system_prompt(PERSONAS[0], role, ["Bruno"])
        assert "partners" not in prompt
        assert "Bruno" not in prompt


# --- reading choices ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I vote for Bruno.", "Bruno"),
        ("i VOTE FOR bruno", "Bruno"),
        ("I vote for **Bruno**!", "Bruno"),
        ('My answer: "I vote for: Bruno"', "Bruno"),
        ("I vote  for\nBruno.", "Bruno"),
        ("I vote for Agnes? No. I vote for Clara.", "Clara"),
        ("I vote for nobody.", NOBODY),
        ("I vote for no one", NOBODY),
        ("Bruno it is.", None),
        ("I will not vote for Bruno.", None),
        ("I vote for Brunoslav.", None),
        ("I vote for Zoe.", None),
        ("AI vote for Bruno.", None),
        ("I nominate Bruno.", None),
        ("", None),
    ],
)
def test_a_choice_is_the_last_sentence_of_its_form(text: str, expected: str | None) -> None:
    assert read_choice(text, Deed.VOTE, NAMES) == expected


# --- counting -----------------------------------------------------------------------------------


def test_the_mafia_kill_whom_most_of_them_name_and_of_several_the_first() -> None:
    assert kill_target({}) is None
    assert kill_target({"x": "Agnes"}) == "Agnes"
    assert kill_target({"x": "Agnes", "y": "Bruno", "z": "Bruno"}) == "Bruno"
    assert kill_target({"x": "Clara", "y": "Bruno"}) == "Clara"


def test_a_tie_spares_the_candidates() -> None:
    assert voted_out({}) is None
    assert voted_out({"a": "Agnes"}) == "Agnes"
    assert voted_out({"a": "Agnes", "b": "Bruno"}) is None
    assert voted_out({"a": "Agnes", "b": "Bruno", "c": "Bruno"}) == "Bruno"
    assert voted_out({"a": "Agnes", "b": "Bruno", "c": "Clara", "d": "Clara"}) == "Clara"


def test_at_most_three_stand_for_the_vote() -> None:
    assert candidates_of({}) == []
    nominations = {"a": "Dmitri", "b": "Agnes", "c": "Bruno", "d": "Clara", "e": "Clara"}
    assert candidates_of(nominations) == ["Clara", "Dmitri", "Agnes"]


@pytest.mark.parametrize(
    ("roles", "winner"),
    [
        ((MAFIA, DOCTOR, DETECTIVE, VILLAGER), None),
        ((MAFIA, VILLAGER, VILLAGER), None),
        ((MAFIA, VILLAGER), Winner.MAFIA),
        ((MAFIA, MAFIA, VILLAGER), Winner.MAFIA),
        ((DOCTOR,), Winner.TOWN),
        ((), Winner.TOWN),
    ],
)
def test_who_has_won(roles: tuple[Role, ...], winner: Winner | None) -> None:
    game = _state(*roles, MAFIA)
    dead = game.players[-1]
    dead.alive = False
    result = winner_of(game.players)
    assert (result and result.winner) == winner


# --- the docket ---------------------------------------------------------------------------------


def _docket() -> Docket:
    docket = Docket(Deed.VOTE, {"Agnes": ["Bruno", "Clara"], "Bruno": ["Clara"], "Clara": []})
    docket.declare("Agnes", "Clara")
    docket.declare("Bruno", None)
    return docket


@pytest.mark.parametrize(
    ("player", "choice", "problem"),
    [
        ("Agnes", "Bruno", "Agnes chose Clara, not Bruno"),
        ("Agnes", "Agnes", "'Agnes' cannot be chosen by Agnes; there are: Bruno, Clara"),
        ("Bruno", "Clara", "Bruno chose nobody; there is nothing to record"),
        ("Agnse", "Clara", "'Agnse' is not asked now; .* Did you mean 'Agnes'"),
        ("Dmitri", "Clara", "'Dmitri' is not asked now"),
    ],
)
def test_anything_else_is_refused_with_what_to_do(player: str, choice: str, problem: str) -> None:
    docket = _docket()
    with pytest.raises(NarratorError, match=problem):
        docket.record(player, choice)
    assert docket.recorded == {}


# --- the narrator's tools -----------------------------------------------------------------------


async def _use(game: GameState, tool: str, **arguments: Any) -> str:
    actions = {action.name: action for action in get_narrator_actions(game)}
    return await actions[tool].function(arguments)


async def test_the_list_of_speakers() -> None:
    game = _state(MAFIA, DOCTOR, DETECTIVE, VILLAGER)
    game.players[1].alive = False
    game.phase = GamePhase.DISCUSSION
    game.open_floor()
    assert game.floor == 3
    assert await _use(game, "select_speaker", player_name="dmitri") == (
        "Dmitri will speak. So far: Dmitri."
    )
    await _use(game, "select_speaker", player_name="Dmitri")
    with pytest.raises(NarratorError, match=r"'Bruno' is not among the living players: Agnes"):
        await _use(game, "select_speaker", player_name="Bruno")
    assert game.floor == 2
    assert [p.name for p in game.close_floor()] == ["Dmitri", "Agnes", "Clara"]
    with pytest.raises(NarratorError, match="no list of speakers is drawn up in the phase 'disc"):
        await _use(game, "select_speaker", player_name="Agnes")


ARGUMENTS = {
    "doctor_protect": {"target_name": "Agnes"},
    "detective_investigate": {"target_name": "Agnes"},
    "mafia_vote_kill": {"mafia_name": "Agnes", "target_name": "Bruno"},
    "select_speaker": {"player_name": "Agnes"},
    "add_nomination": {"player_name": "Agnes", "nominee_name": "Bruno"},
    "add_vote": {"voter_name": "Agnes", "candidate_name": "Bruno"},
}


@pytest.mark.parametrize("tool", NARRATOR_TOOLS)
async def test_a_tool_out_of_its_turn_is_refused(tool: str) -> None:
    game = _state(MAFIA, DOCTOR, DETECTIVE, VILLAGER)
    with pytest.raises(NarratorError, match="in the phase 'setup'"):
        await _use(game, tool, **ARGUMENTS[tool])
    assert game.speakers == []


@pytest.mark.parametrize("tool", NARRATOR_TOOLS)
async def test_a_tool_wants_all_its_arguments_and_says_so(tool: str) -> None:
    game = _state(MAFIA, DOCTOR, DETECTIVE, VILLAGER)
    with pytest.raises(ToolError, match=f"invalid arguments for '{tool}'"):
        await _use(game, tool)
