"""What the agents of the tests do: a dispatcher carries out orders, two in the weather answer."""

import asyncio
import re
from typing import Any

from mail.api import MAILAction, MAILSwarmTemplate
from mail.llm.script import Steps, call
from mail.llm.script_view import ScriptView
from tests.federation.kit import Agent, swarm

HARBOUR, WEATHER, TIDE = "harbour", "weather", "tide"


def dispatch(view: ScriptView) -> Steps:
    """Do what the person says, and finish with what comes back.

    ``ask x@y: text``, ``interrupt x@y: text``, ``everywhere x,y: text``; several are joined by
    ``&``.
    """
    if view.forced == "task_complete":
        return call("task_complete", finish_message="told to finish")
    failed = next((r.content for r in view.new_results if r.content.startswith("ERROR")), None)
    if failed:
        return call("task_complete", finish_message=failed)
    if view.mail.sender_type in ("user", "admin"):
        return _orders(view.body)
    if view.subject == "::delivery_delayed::":
        return call("await_message", reason="it is on its way")
    said = f"{view.sender} says: {view.body}"
    if view.mail.sender_type == "system":
        return call("task_complete", finish_message=f"{view.subject} {view.body}")
    return call("task_complete", finish_message=said)


def _orders(body: str) -> Any:
    return [_order(part.strip()) for part in body.split("&")]


def _order(order: str) -> Any:
    found = re.fullmatch(r"(\w+) (\S+): (.*)", order, re.DOTALL)
    if found is None:
        return call("task_complete", finish_message=f"You said: {order}")
    verb, target, text = found.groups()
    if verb == "everywhere":
        swarms = target.split(",")
        return call("send_interswarm_broadcast", target_swarms=swarms, subject=verb, body=text)
    tool = "send_interrupt" if verb == "interrupt" else "send_request"
    return call(tool, target=target, subject=verb, body=text)


async def forecast(view: ScriptView) -> Steps:
    """Answer whoever asks. ``hang`` waits for an interrupt, ``consult`` for the captain."""
    if view.forced == "task_complete":
        return call("task_complete", finish_message="told to finish")
    told = [found for found in view.new_results if found.tool == "ask_captain"]
    asker = view.mail_from() or view.mail
    if told:
        body = f"the captain says: {told[-1].content}"
        return call("send_response", target=asker.sender, subject="Re", body=body)
    if view.mail.sender_type in ("user", "admin"):
        if "hang" in view.body:
            await asyncio.Event().wait()
        if "fail" in view.body:
            return call("task_complete")
        return call("task_complete", finish_message=f"for {view.sender}: {view.body}")
    interrupted = any(mail.subject == "interrupt" for mail in view.mails)
    if "hang" in view.body and not interrupted:
        await asyncio.Event().wait()
    if "consult" in view.body:
        return call("ask_captain", question=view.body)
    return call("send_response", target=asker.sender, subject="Re", body=f"{view.body}, heard")


ASK_CAPTAIN = MAILAction(
    "ask_captain",
    "Ask the captain.",
    {"type": "object", "properties": {"question": {"type": "string"}}, "required": ["question"]},
    lambda arguments: "never run: it is a breakpoint",
)


def harbour() -> MAILSwarmTemplate:
    """Return the swarm with the dispatcher."""
    return swarm(HARBOUR, dispatcher=Agent(script=dispatch, leads=True, open=True, targets=["*@*"]))


def weather(name: str = WEATHER) -> MAILSwarmTemplate:
    """Return a swarm that answers; its ``cellar`` is not for others."""
    return swarm(
        name,
        ["ask_captain"],
        chief=Agent(script=forecast, leads=True, open=True, targets=["wind"]),
        wind=Agent(script=forecast, open=True, targets=["chief"], actions=[ASK_CAPTAIN]),
        cellar=Agent(script=forecast, targets=["chief"]),
    )
