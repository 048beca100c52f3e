"""Whole games of Mafia with scripted players, over real mailboxes."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from mail.core.tasks import MAILTask
from mail.examples.mafia import Agent, Game, GamePhase, Winner
from mail.examples.mafia.choices import Deed
from mail.examples.mafia.prompts import NARRATOR
from mail.examples.mafia.roles import DETECTIVE, DOCTOR, Faction
from mail.examples.mafia.state import kill_target, voted_out
from tests.examples.mafia_recorder import Look, Recorder, mail_of, strays

ROOT = Path(__file__).parents[2]
SEEDS = (1, 5, 7, 13)


async def _played(game: Game) -> MAILTask:
    async with game:
        await game.run()
        task = await game.swarm.read_task(game.task_id)
    assert task is not None
    return task


class Played(NamedTuple):
    """A game of eight that was played to its end, its task, and what the agents saw of it."""

    game: Game
    task: MAILTask
    recorder: Recorder


@pytest.fixture(scope="module", params=SEEDS)
def played(request: pytest.FixtureRequest) -> Played:
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        recorder.install(patch)
        game = Game.create(8, seed=request.param)
        return Played(game, asyncio.run(_played(game)), recorder)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Watches all scripted agents."""
    made = Recorder()
    made.install(monkeypatch)
    return made


async def test_a_night_is_played_alone_by_the_names_of_the_guide() -> None:
    async with Game.create(8, seed=7) as game:
        doctor = next(player for player in game.players if player.role is DOCTOR)
        assert isinstance(doctor, Agent)
        assert doctor.build_agent_template().name == doctor.name
        await game.start_game()
        news = await game.run_night_phase()
        assert game.protected_player in [player.name for player in game.players]
        target = kill_target(game.night_votes)
        saved = target == game.protected_player
        assert news.startswith("Nobody died" if saved else f"{target} was killed in the night.")
        game.protected_player = victim = game.get_mafia_members()[0].name
        game.night_votes = {"somebody": victim}
        assert game.resolve_night_actions() == "Nobody died tonight."
        game.protected_player = None
        assert game.resolve_night_actions().startswith(f"{victim} was killed")


# --- what a game is -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_eight_players_play_to_a_winner(seed: int, store: str, tmp_path: Path) -> None:
    url = None if store == "memory" else f"sqlite:///{tmp_path / 'mafia.db'}"
    game = Game.create(8, seed=seed, store=url)
    task = await _played(game)
    assert game.phase is GamePhase.GAME_OVER
    assert game.result is not None and game.result.winner in (Winner.TOWN, Winner.MAFIA)
    mafia = len(game.get_mafia_members())
    assert (mafia == 0) == (game.result.winner is Winner.TOWN)
    assert mafia == 0 or mafia * 2 >= len(game.living)
    assert len(game.living) + len(game.deaths) == 8
    assert await game.run() is game.result  # a game is played once
    assert task.status == "completed"
    answer = next(event for event in task.events if event.kind == "task_complete")
    assert f"Winner: {game.result.winner}" in answer.description + str(answer.extra)
    assert not [event for event in task.events if "error" in event.kind]


async def test_both_sides_can_win() -> None:
    winners = set()
    for seed in range(4, 10):
        game = Game.create(8, seed=seed)
        await _played(game)
        winners.add(game.result and game.result.winner)
    assert winners == {Winner.TOWN, Winner.MAFIA}


async def test_the_same_seed_is_the_same_game_and_another_one_is_not() -> None:
    games = [Game.create(8, seed=seed) for seed in (5, 5, 6)]
    for game in games:
        await _played(game)
    first, again, other = [game.transcript.spoken for game in games]
    assert first == again
    assert first != other


@pytest.mark.parametrize("players", [4, 5, 12, 20])
async def test_other_numbers_of_players_play_to_a_winner_too(players: int) -> None:
    game = Game.create(players, seed=players)
    await _played(game)
    assert game.result is not None and game.result.winner is not Winner.DRAW


# --- who was shown what -------------------------------------------------------------------------


def test_no_private_message_reaches_a_wrong_player(played: Played) -> None:
    game, task, recorder = played
    mail = mail_of(task.events)
    private = [message for message in mail if message.private]
    assert len({message.mark for message in mail}) == len(mail), "each text can be told apart"
    assert len(private) > 20
    assert recorder.agents <= {NARRATOR, *(player.name for player in game.players)}
    assert len(recorder.agents) >= 8  # who is killed in the first night never gets to speak
    assert strays(mail, recorder) == []


def test_every_message_reaches_those_it_is_for(played: Played) -> None:
    _, task, recorder = played
    missed = []
    arrived = 0
    for message in mail_of(task.events):
        written = next(at for at, look in enumerate(recorder.looks) if message.mark in look.said)
        hearers = recorder.agents if "all" in message.hearers else message.hearers
        for hearer in hearers - {message.sender}:
            later = [look for look in recorder.looks[written:] if look.agent == hearer]
            missed.extend(
                (message.mark, hearer) for look in later[:1] if message.mark not in look.shown
            )
            arrived += bool(later)
    assert missed == []
    assert arrived > 100


def test_a_leak_would_be_noticed(played: Played) -> None:
    game, task, recorder = played
    mail = mail_of(task.events)
    message = next(message for message in mail if message.private)
    stranger = next(
        player.name
        for player in game.players
        if player.name not in {message.sender, *message.hearers}
    )
    leaked = f"<public_message>\n<from>x</from>\n{message.body}\n</public_message>"
    looks = [*recorder.looks, Look(stranger, "", leaked, "", "")]
    assert strays(mail, Recorder(looks=looks)) == [(message.mark, stranger)]


def test_private_mail_goes_where_the_rules_say(played: Played) -> None:
    game, task, _ = played
    mail = mail_of(task.events)
    mafia = {player.name for player in game.players if player.is_mafia}
    kills = [message for message in mail if "I vote to kill" in message.body]
    ballots = [message for message in mail if "I vote for" in message.body]
    assert kills and ballots
    for message in kills:
        assert message.sender in mafia
        assert NARRATOR in message.hearers
        assert message.hearers - {NARRATOR} <= mafia
    assert any(len(message.hearers) == 2 for message in kills), "partners hear one another"
    assert {message.hearers for message in ballots} == {frozenset({NARRATOR})}


def test_only_detective_and_narrator_learn_what_was_found(played: Played) -> None:
    game, task, recorder = played
    detective = next(player.name for player in game.players if player.role is DETECTIVE)
    results = [
        event.extra["result"]
        for event in task.events
        if event.kind == "action_complete" and event.extra["tool_name"] == "detective_investigate"
    ]
    findings = [result.partition(" finds out: ")[2] for result in results]
    assert findings and all(re.fullmatch(r"\w+ is .*member of the mafia\.", f) for f in findings)
    for finding in findings:
        holders = {agent for agent in recorder.agents if finding in recorder.shown_to(agent)}
        assert NARRATOR in holders
        assert holders <= {NARRATOR, detective}
    told = [m for m in mail_of(task.events) if "this is what you found" in m.body]
    assert {m.hearers for m in told} == {frozenset({detective})}
    knowing = {agent for agent in recorder.agents if "Your findings" in recorder.shown_to(agent)}
    assert knowing == {detective}


def test_nobody_is_told_the_role_of_another(played: Played) -> None:
    game, _, recorder = played
    for player in game.players:
        shown = recorder.shown_to(player.name)
        assert set(re.findall(r"Your secret role: (\w+)", shown)) <= {player.role.name}
        is_mafia = player.role.faction is Faction.MAFIA
        assert is_mafia or "Your partners" not in shown
    assert "Your secret role" not in recorder.shown_to(NARRATOR)


async def test_each_step_has_the_prompt_of_its_player(recorder: Recorder) -> None:
    game = Game.create(8, seed=5)
    await _played(game)
    for player in game.players:
        prompts = {look.system.partition(",")[0] for look in recorder.of(player.name)}
        assert prompts == {f"You are {player.name}"}
    two = [player for player in game.players if player.is_mafia]
    first = recorder.of(two[0].name)[0].system
    assert f"Your partners in the mafia: {two[1].name}." in first  # not in the agent's own prompt


# --- what the game makes of it ------------------------------------------------------------------


def test_the_dead_stay_silent(played: Played) -> None:
    game, _, recorder = played
    assert game.deaths
    for look in recorder.looks:
        living = re.search(r"^Living: (.*)\.$", look.payload, re.MULTILINE)
        assert living is not None
        assert look.agent in {NARRATOR, *living[1].split(", ")}
    for death in game.deaths:
        later = [
            spoken
            for spoken in game.transcript.spoken
            if spoken.chapter == f"Night {death.round + 1}"
        ]
        assert death.name not in {spoken.speaker for spoken in later}
        assert not any(death.name in spoken.hearers for spoken in later)


def test_the_tools_of_the_narrator_make_the_game(played: Played) -> None:
    game, task, _ = played
    assert game.mended == [], "every choice was recorded by a tool"
    tools = _tools_used(task)
    assert {name for name, _ in tools} == {
        "doctor_protect",
        "detective_investigate",
        "mafia_vote_kill",
        "select_speaker",
        "add_nomination",
        "add_vote",
    }
    assert [death.name for death in game.deaths] == _deaths_by(tools)
    looked_into = [args["target_name"] for name, args in tools if name == "detective_investigate"]
    assert list(game.findings) == looked_into


def _tools_used(task: MAILTask) -> list[tuple[str, dict[str, str]]]:
    done = {e.extra["tool_call_id"] for e in task.events if e.kind == "action_complete"}
    return [
        (event.extra["tool_name"], event.extra["tool_args"])
        for event in task.events
        if event.kind == "tool_call" and event.extra["tool_call_id"] in done
    ]


def _deaths_by(tools: list[tuple[str, dict[str, str]]]) -> list[str]:
    """Work out from the tool calls alone who had to leave the game."""
    deaths: list[str | None] = []
    protected, kills, votes = None, {}, {}
    for name, args in [*tools, ("doctor_protect", {"target_name": ""})]:
        if votes and name != "add_vote":
            deaths.append(voted_out(votes))
            votes = {}
        if kills and name != "mafia_vote_kill":
            target = kill_target(kills)
            deaths.append(None if target == protected else target)
            kills, protected = {}, None
        if name == "doctor_protect":
            protected = args["target_name"]
        elif name == "mafia_vote_kill":
            kills[args["mafia_name"]] = args["target_name"]
        elif name == "add_vote":
            votes[args["voter_name"]] = args["candidate_name"]
    return [name for name in deaths if name is not None]


async def test_speakers_speak_in_the_order_that_the_narrator_chose() -> None:
    game = Game.create(8, seed=7)
    task = await _played(game)
    chosen = [args["player_name"] for name, args in _tools_used(task) if name == "select_speaker"]
    talk = [
        spoken.speaker
        for spoken in game.transcript.spoken
        if spoken.public and spoken.speaker != NARRATOR and f"I {Deed.NOMINATE}" not in spoken.text
    ]
    assert talk == chosen


# --- the script ---------------------------------------------------------------------------------


def _run_script(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "run_mafia.py"), *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )


def test_the_script_prints_a_game() -> None:
    done = _run_script("--players", "8", "--seed", "7")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for part in ("--- Night 1 -", "--- Day 1 -", "[only to Narrator]", "--- The end -"):
        assert part in done.stdout
    assert re.search(r"Winner: (town|mafia) \(", done.stdout)
    assert max(map(len, done.stdout.splitlines())) <= 96
    assert _run_script("--players", "8", "--seed", "7").stdout == done.stdout


def test_the_script_says_what_is_wrong() -> None:
    done = _run_script("-n", "3")
    assert done.returncode == 2
    assert done.stderr == "run_mafia: Mafia takes 4 to 20 players, got 3\n"


def test_an_interactive_game_shows_each_step_and_takes_what_a_person_adds() -> None:
    done = _run_script("-n", "4", "--seed", "3", "-i", given="\nSay it in verse.\n")
    assert done.returncode == 0, done.stderr
    assert "Next: Narrator, with this payload:" in done.stdout
    assert done.stdout.count("Add to the payload") == done.stdout.count("* Next: ")
    assert "Winner: " in done.stdout  # the end of the input counts as Enter


async def test_what_a_person_adds_reaches_the_agent(recorder: Recorder) -> None:
    game = Game.create(4, seed=3, interactive=True)
    answers = iter(["", "Say it in verse."])
    game.ask = lambda question: next(answers, "")
    await _played(game)
    first, second, *_ = recorder.looks
    assert "Say it in verse." not in first.shown
    assert second.payload.endswith("\nSay it in verse.")
