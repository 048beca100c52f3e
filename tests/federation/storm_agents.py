"""The agents of the storm: one asks, one in another swarm answers, and both keep a diary.

It lies beside the server, and is held against the server's tables.
"""

import json
import os
import re
from typing import Any

from mail.core.agents import ToolChoice
from mail.core.tools.call import AgentToolCall
from mail.llm.script_view import Mail

_JOB = re.compile(r"job-\d+")


def _call(name: str, number: int, **values: Any) -> AgentToolCall:
    call_id = f"{name}-{number}"
    return AgentToolCall(
        tool_name=name,
        tool_args=values,
        tool_call_id=call_id,
        completion={
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(values)},
                }
            ],
        },
    )


def _note(agent: str, mail: Mail) -> str:
    """Write down one look at a message; return the job that it is about."""
    found = _JOB.search(mail.subject + mail.body)
    job = found.group() if found else ""
    line = {"agent": agent, "job": job, "from": mail.sender, "subject": mail.subject}
    text = json.dumps(line) + "\n"
    diary = os.open(os.environ["STORM_DIARY"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(diary, text.encode())  # one write, so that lines never mix
    os.close(diary)
    return job


class _Agent:
    """What both have in common; extra parameters of a factory are of no use to them."""

    def __init__(self, name: str, **_: Any) -> None:
        self.name = name

    async def __call__(
        self, messages: list[dict[str, Any]], tool_choice: ToolChoice = "required"
    ) -> tuple[str | None, list[AgentToolCall]]:
        mail = Mail.read(str(messages[-1]["content"]))
        return None, [self.answer(mail, _note(self.name, mail), len(messages))]

    def answer(self, mail: Mail, job: str, number: int) -> AgentToolCall:
        """Return the call that a message leads to."""
        return _call("await_message", number, reason=job)


class Asker(_Agent):
    """Has each job done in the other swarm, and hands the answer on."""

    def answer(self, mail: Mail, job: str, number: int) -> AgentToolCall:
        if mail.sender_type == "user":
            return _call(
                "send_request", number, target="worker@south", subject=job, body=f"do {job}"
            )
        if mail.sender == "worker@south" or mail.subject == "::undeliverable::":
            return _call("task_complete", number, finish_message=f"{mail.subject}: {mail.body}")
        return _call("await_message", number, reason=mail.subject)


class Worker(_Agent):
    """Does a job at once."""

    def answer(self, mail: Mail, job: str, number: int) -> AgentToolCall:
        if mail.sender == "asker@north":
            return _call(
                "send_response", number, target=mail.sender, subject=job, body=f"{job} is done"
            )
        return _call("await_message", number, reason=mail.subject)
