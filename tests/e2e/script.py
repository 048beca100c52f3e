"""What the fake provider's models say to the agents of `tests.e2e.swarm`.

The lead sends both workers the user's question. A worker looks, then notes; told that the outcome
of noting is unknown, it looks again and notes only what is not there. Answers are counts of lines,
so an action that ran twice shows in the answer. A job that begins with "ask" makes it ask a person,
at a breakpoint. News are passed on, and acknowledged or ignored.
"""

import asyncio
import json
import os
import re
from pathlib import Path

from mail.llm.script import Call, Say, call, say
from mail.llm.script_view import ScriptView

WORKERS = ("north", "south")
PARTICIPANTS = ("editor", "tester")
"""Who may write to the lead like a user."""
STORY = " ".join(f"word{number}" for number in range(300))


async def reply(view: ScriptView) -> list[Call | Say]:
    """Reply for whichever agent asks, once its gate is open."""
    agent = await admitted(view)
    return lead(view) if agent == "lead" else work(view, agent)


async def admitted(view: ScriptView) -> str:
    """Return which agent asks, once its gate is open."""
    named = re.search(r"Your name is (\w+)\.", view.system)
    agent = named[1] if named else ""
    _note_mail(agent, view)
    while _is_closed(f"model-{agent}"):
        await asyncio.sleep(0.01)
    return agent


def _note_mail(agent: str, view: ScriptView) -> None:
    """Write down which mail stands in a request: ``seen.jsonl`` in the place's folder."""
    file = Path(os.environ["E2E_GATES"]).parent / "seen.jsonl"
    with file.open("a", encoding="utf-8") as seen:
        seen.write(json.dumps([agent, [[mail.sender, mail.body] for mail in view.mails]]) + "\n")


def _is_closed(gate: str) -> bool:
    return Path(os.environ["E2E_GATES"], gate).exists()


def lead(view: ScriptView) -> list[Call | Say]:
    """Share a question out, gather what comes back, finish."""
    if view.forced:
        return [call("task_complete", finish_message="cut short")]
    if view.mail.sender_type == "user" or view.sender in PARTICIPANTS:
        return _answer_person(view)
    question = view.body.split(": ")[0]
    answers = {
        mail.sender: mail.body.removeprefix(f"{question}: ")
        for mail in view.mails
        if mail.sender in WORKERS and mail.body.startswith(f"{question}: ")
    }
    if len(answers) < len(WORKERS):
        return [call("await_message", reason="the other worker is not done")]
    text = "; ".join(answers[worker] for worker in WORKERS)
    return [call("task_complete", finish_message=f"{question}: {text}")]


def _answer_person(view: ScriptView) -> list[Call | Say]:
    if view.body.startswith("stop"):
        return [call("task_complete", finish_message="stopped")]
    if view.body.startswith("news"):
        news = call("send_broadcast", subject="News", body=view.body)
        return [call("acknowledge_broadcast", note="private"), news]
    if view.body.startswith("tell"):
        told = any(mail.body.startswith("stop") for mail in view.mails)
        done = call("task_complete", finish_message="told")
        return [done] if told else [say(STORY), done]
    return [
        call("send_request", target=worker, subject="Job", body=view.body) for worker in WORKERS
    ]


def work(view: ScriptView, name: str, boss: str = "lead") -> list[Call | Say]:
    """Look and note, then report; look again when the outcome is unknown."""
    request = view.mail_from(boss)
    job = request.body if request else ""
    if job.startswith("ask"):
        return ask(view, job, name)
    if job.startswith("news"):
        return [call("acknowledge_broadcast" if name == "north" else "ignore_broadcast")]
    note, look = call(f"note_{name}", job=job), call("look", job=job, worker=name)
    if view.sender == boss:
        return [look, note]
    last = view.new_results[-1]
    if "outcome is unknown" in last.content:
        return [look]
    count = re.search(r"\d+ lines", last.content)
    if last.tool == "look" and "0 lines" in last.content:
        return [note]
    report = f"{job}: {name} has {count[0] if count else last.content}"
    return [call("send_response", target=boss, subject="Report", body=report)]


def ask(view: ScriptView, job: str, name: str) -> list[Call | Say]:
    """Ask a person, at a breakpoint, and report the answer."""
    if view.sender == "lead" and not view.new_results:
        return [call("ask_person", question=f"{name}: {job}")]
    report = f"{job}: {name} has {view.new_results[-1].content}"
    return [call("send_response", target="lead", subject="Report", body=report)]
