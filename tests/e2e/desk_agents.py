"""Agents who take part in the simulation of the mail desk: they do what letters tell them.

``ask 12 p03`` lets an agent ask that participant, and wait; ``wait 12 p03 0.2`` lets it wait for a
reply of a teammate so long; with everything else it finishes, and says which text it has read. What
stands in the requests to their models is written down before they answer.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mail.api import MAILAgentTemplate, MAILSwarmTemplate
from mail.llm.script import Steps, call
from mail.llm.script_view import Mail, ScriptView
from tests.support.swarm import scripted_agent

__all__ = ["BOSS", "CLERK", "REQUESTS", "TEAM", "make_swarm", "mates", "targets"]

BOSS: Final = "boss"
"""The entrypoint, who may write to everybody and leads the team."""
CLERK: Final = "clerk"
"""Another agent, who may write to a few."""
TEAM: Final = "alpha"
REQUESTS: Final = "requests.jsonl"
"""The file with what stood in requests: agent, and the beginnings of the letters."""


def mates(names: Sequence[str]) -> tuple[str, ...]:
    """Return the participants who are in the team."""
    return tuple(names[: len(names) // 2])


def targets(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return whom each agent may write to."""
    return {BOSS: tuple(names), CLERK: tuple(names[len(names) // 4 : len(names) * 3 // 4])}


def make_swarm(name: str, folder: Path, names: Sequence[str]) -> MAILSwarmTemplate:
    """Return the swarm; its agents' models write down their requests in the folder."""
    found = targets(names)
    return MAILSwarmTemplate(
        name=name,
        version="1",
        agents=[_agent(each, found[each], folder / REQUESTS) for each in found],
        entrypoint=BOSS,
        participants=[{"name": each, "description": ""} for each in names],
        teams=[{"id": TEAM, "lead": BOSS, "members": list(mates(names))}],
    )


def _agent(name: str, may_write_to: Sequence[str], file: Path) -> MAILAgentTemplate:
    async def reply(view: ScriptView) -> Steps:
        _note(file, name, view)
        return _answer(view, may_write_to)

    return scripted_agent(
        name, reply, *may_write_to, system="Obey.", enable_entrypoint=name == BOSS
    )


def _answer(view: ScriptView, may_write_to: Sequence[str]) -> Steps:
    word, number, *rest = [*_posts(view.mail)[-1][1].split(), "", ""]
    if view.forced == "task_complete":
        return call("task_complete", finish_message="told to finish")
    waited = [each for each in view.new_results if each.tool == "teammate_message"]
    if waited:
        result = json.loads(waited[-1].content)
        heard = result.get("reply", {}).get("message", "").split()[1:2]
        told = f"heard {heard[0]}" if heard else f"{result['status']} {number}"
        return call("task_complete", finish_message=told)
    if word == "ask" and rest[0] in may_write_to:
        return call("send_request", target=rest[0], subject="A question", body=f"asked {number}")
    if word == "wait":
        question: dict[str, Any] = {"teamId": TEAM, "to": rest[0], "message": f"asked {number}"}
        question |= {"waitForReply": True, "timeoutSeconds": float(rest[1])}
        return call("teammate_message", **question)
    return call("task_complete", finish_message=f"done {number}")


def _posts(mail: Mail) -> list[tuple[str, str]]:
    """Return what a message brings: sender and text of earlier posts of its thread, and its own."""
    earlier, new, own = mail.body.partition(f"\n\nThe new message, from {mail.sender}:\n")
    if not new:
        return [(mail.sender, mail.body)]
    return [*_earlier(earlier), (mail.sender, own)]


def _earlier(told: str) -> list[tuple[str, str]]:
    lines = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    return [(line["from"], line["text"]) for line in lines if "from" in line]


def _note(file: Path, agent: str, view: ScriptView) -> None:
    """Write down who wrote what, as far as it is in the request."""
    mails = [mail for mail in view.mails if mail.sender_type == "agent"]
    found = [post for mail in mails for post in _posts(mail)]
    for result in view.results:
        reply = json.loads(result.content).get("reply") if '"reply"' in result.content else None
        if reply:
            found.extend(_earlier(reply.get("earlier", "")))
            found.append((reply["from"], reply["message"]))
    line = json.dumps([agent, [[who, " ".join(text.split()[:2])] for who, text in found]])
    with file.open("a", encoding="utf-8") as requests:
        requests.write(line + "\n")
