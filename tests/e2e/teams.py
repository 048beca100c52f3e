"""Swarms that are drawn at random: a lead, heads that work for it, workers that work for either.

``team.json`` in a place's folder says who works for whom. Whom an agent asks depends on the job
alone, so each job has one right answer.
"""

import functools
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

from mail.api import MAILSwarmTemplate
from mail.llm.script import Call, Say, call
from mail.llm.script_view import ScriptView
from tests.e2e.script import admitted, work
from tests.e2e.swarm import SWARM, Traces, make_agent, make_look, make_note

TEMPLATE = "tests.e2e.teams:make_swarm"
SCRIPT = "tests.e2e.teams:reply"
PAUSE = 0.1  # seconds that an action takes, so that kills hit some

Team = dict[str, list[str]]
"""Who works for each that others work for; the lead comes first."""


def draw(folder: Path, seed: int) -> Team:
    """Draw a team, and write it down for the server and the provider of a folder."""
    chance, team = random.Random(seed), Team()
    team["lead"] = [f"a{number}" for number in range(chance.randint(2, 3))]
    for name in team["lead"][: chance.randint(0, 2)]:
        team[name] = [f"{name}_{number}" for number in range(chance.randint(1, 2))]
    (folder / "team.json").write_text(json.dumps(team))
    return team


@functools.cache
def _team_of(folder: Path) -> Team:
    team: Team = json.loads((folder / "team.json").read_text())
    return team


def workers(team: Team) -> list[str]:
    """Return those that nobody works for."""
    return [name for people in team.values() for name in people if name not in team]


def asked(team: Team, name: str, job: str) -> list[str]:
    """Return whom an agent asks about a job."""
    people, chance = team[name], random.Random(f"{job}/{name}")
    return sorted(chance.sample(people, chance.randint(1, len(people))))


def at_work(team: Team, job: str, name: str = "lead") -> Iterator[str]:
    """Return the agents that have to do with a job."""
    yield name
    for each in asked(team, name, job) if name in team else ():
        yield from at_work(team, job, each)


def answer(team: Team, job: str) -> str:
    """Return what a job's answer must be."""
    return f"{job}: {_reports(team, 'lead', job)}"


def _reports(team: Team, name: str, job: str) -> str:
    return "; ".join(
        f"{each} has ({_reports(team, each, job)})" if each in team else f"{each} has 1 lines"
        for each in asked(team, name, job)
    )


def make_swarm(folder: Path) -> MAILSwarmTemplate:
    """Return the swarm of a folder's team."""
    team, traces = _team_of(folder), Traces(folder, PAUSE)
    agents = [make_agent("lead", team["lead"], [], leads=True, use_proxy=False)]
    for boss, people in team.items():
        for name in people:
            actions = [] if name in team else [make_look(traces), make_note(traces, name)]
            targets = [boss, *team.get(name, ())]
            agents.append(make_agent(name, targets, actions, use_proxy=False))
    return MAILSwarmTemplate(SWARM, agents=agents, entrypoint="lead")


async def reply(view: ScriptView) -> list[Call | Say]:
    """Reply for whichever agent of the team asks, once its gate is open."""
    name = await admitted(view)
    team = _team_of(Path(os.environ["E2E_GATES"]).parent)
    boss = next((each for each, people in team.items() if name in people), "")
    if name not in team:
        return work(view, name, boss)
    request = view.mail_from(boss) if boss else view.mails[0]
    job = request.body if request else ""
    names = asked(team, name, job)
    if view.mail == request:
        return [call("send_request", target=each, subject="Job", body=job) for each in names]
    told = {mail.sender: mail.body.removeprefix(f"{job}: ") for mail in view.mails}
    if not told.keys() >= set(names):
        return [call("await_message", reason="another one is not done")]
    text = "; ".join(told[each] for each in names)
    if not boss:
        return [call("task_complete", finish_message=f"{job}: {text}")]
    report = f"{job}: {name} has ({text})"
    return [call("send_response", target=boss, subject="Report", body=report)]
