"""The agents of the email assistant: one sorts an email, the other handles it.

The triage agent asks its model one question, how to sort the email. What follows from the answer is
not for a model to decide: the email goes to the response agent word for word, to the person, or
nowhere.
"""

import json
from dataclasses import replace
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Any, Final
from zoneinfo import ZoneInfo

from mail.config.stdlib import EmailConfig
from mail.core.agents import AgentOutput, ToolChoice
from mail.core.call_context import current_call, enter_call
from mail.core.compose import Subject
from mail.core.tools.call import AgentToolCall
from mail.core.tools.catalogue import TEXT_TOOL
from mail.core.tools.schema import get_tool_spec_name
from mail.errors import AgentError, ToolError
from mail.examples.email_assistant.actions import my_settings
from mail.examples.email_assistant.formatting import format_gmail_markdown, parse_gmail, quoted
from mail.examples.email_assistant.prompts import (
    GMAIL_TOOLS_PROMPT,
    REMINDER,
    agent_system_prompt_hitl_memory,
    default_background,
    default_cal_preferences,
    default_response_preferences,
    default_triage_preferences,
    triage_system_prompt,
    triage_user_prompt,
)
from mail.factories.action import LiteLLMActionAgentFunction
from mail.factories.base import remembered
from mail.llm.script_view import Mail, ScriptView

RESPONDER: Final = "response_agent"
_PEOPLE: Final = ("user", "admin")
_SILENT: Final = "the model called no tool, even when it was asked again"


class _ToolCaller(LiteLLMActionAgentFunction):
    """An agent with its own tools alone, whose replies are tool calls."""

    def __init__(self, **params: Any) -> None:
        """Take the arguments, by name, of `mail.factories.LiteLLMActionAgentFunction`."""
        super().__init__(**{"system": "", "_debug_include_mail_tools": False, **params})

    async def _call_a_tool(
        self, messages: list[dict[str, Any]], tool_choice: ToolChoice, system: str
    ) -> AgentOutput:
        """Ask the model; if it calls no tool, remind it once.

        Raises:
            AgentError: it calls none then, either.
        """
        call = current_call()
        if call.system is None:
            enter_call(replace(call, system=system))
        text, calls = await super().__call__(messages, tool_choice)
        if not _calls_a_tool(calls):
            said = {"role": "assistant", "content": text or "(nothing)"}
            again = [*messages, said, {"role": "user", "content": REMINDER}]
            text, calls = await super().__call__(again, tool_choice)
        if not _calls_a_tool(calls):
            raise AgentError(_SILENT)
        return text, calls


class LiteLLMResponseFunction(_ToolCaller):
    """Handles one email: drafts, asks, looks into the calendar, and says when it is done."""

    async def __call__(
        self, messages: list[dict[str, Any]], tool_choice: ToolChoice = "required"
    ) -> AgentOutput:
        """Ask the model, with the person's preferences in the prompt."""
        known = partial(remembered, current_call())
        system = agent_system_prompt_hitl_memory.format(
            tools_prompt=GMAIL_TOOLS_PROMPT,
            background=_background(),
            response_preferences=await known("response_preferences", default_response_preferences),
            cal_preferences=await known("cal_preferences", default_cal_preferences),
        )
        return await self._call_a_tool(messages, tool_choice, system)


class LiteLLMTriageFunction(_ToolCaller):
    """Sorts an email, and sees to what follows."""

    def __init__(self, **params: Any) -> None:
        """Take the arguments, by name, of `mail.factories.LiteLLMActionAgentFunction`."""
        super().__init__(**{**params, "tool_format": "completions"})

    def _declared_tools(self) -> list[Any]:
        tools = super()._declared_tools()
        return [tool for tool in tools if get_tool_spec_name(tool) == "triage_email"]

    async def __call__(
        self, messages: list[dict[str, Any]], tool_choice: ToolChoice = "required"
    ) -> AgentOutput:
        """Do what the newest message or result asks for; the model only sorts."""
        view = ScriptView(messages)
        first = next((mail for mail in view.mails if mail.sender_type in _PEOPLE), Mail())
        if isinstance(tool_choice, dict):
            return _do("task_complete", finish_message=f"This email is not finished. {view.body}")
        for result in view.new_results:
            if result.content.startswith("SUCCESS") and result.tool == "triage_email":
                return _follow(result.content.removeprefix("SUCCESS: "), first)
            if result.tool == "notify_person":
                return _after_notice(result.content, first)
        if view.subject == Subject.AGENT_ERROR:
            return _do("task_complete", finish_message=f"The email was not handled: {view.body}")
        if view.mail.sender_type in _PEOPLE and view.mail is not first and len(view.mails) > 1:
            return _hand_over(first, view.body)
        return await self._sort(first, tool_choice)

    async def _sort(self, first: Mail, tool_choice: ToolChoice) -> AgentOutput:
        try:
            my_settings()
        except ToolError as error:
            return _do("task_complete", finish_message=f"The email was not handled: {error}")
        author, to, subject, thread, _ = parse_gmail(first.body)
        question = triage_user_prompt.format(
            author=author, to=to, subject=subject, email_thread=quoted(thread)
        )
        rules = await remembered(current_call(), "triage_preferences", default_triage_preferences)
        system = triage_system_prompt.format(background=_background(), triage_instructions=rules)
        asked = [{"role": "user", "content": question}]
        return await self._call_a_tool(asked, tool_choice, system)


def _follow(classification: str, first: Mail) -> AgentOutput:
    """Return what follows from how an email was sorted."""
    if classification == "respond":
        return _hand_over(first)
    *_, subject, _, _ = parse_gmail(first.body)
    if classification == "notify":
        author, *_ = parse_gmail(first.body)
        return _do("notify_person", content=f"An email of {author}: {subject}")
    return _do("task_complete", finish_message=f"Ignored: {subject}")


def _after_notice(answer: str, first: Mail) -> AgentOutput:
    """Return what follows from what the person says to a notice."""
    if answer.startswith("ERROR"):
        return _do("task_complete", finish_message=f"The person was not notified. {answer}")
    return _hand_over(first, answer)


def _hand_over(first: Mail, wish: str = "") -> AgentOutput:
    """Send the email, word for word, to the agent that handles it."""
    author, to, subject, thread, email_id = parse_gmail(first.body)
    parts = [
        "Handle this email.",
        format_gmail_markdown(subject, author, to, thread, email_id),
        f"The person you work for says about it:\n\n{quoted(wish)}" if wish else "",
    ]
    body = "\n\n".join(filter(None, parts))
    return _do("send_request", target=RESPONDER, subject=subject or "An email", body=body)


def _do(tool: str, **arguments: Any) -> AgentOutput:
    """Return a call that no model has made."""
    call = current_call()
    call_id = "call_" + sha256(f"{call.step}/{tool}".encode()).hexdigest()[:24]
    function = {"name": tool, "arguments": json.dumps(arguments)}
    said = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }
    made = AgentToolCall(tool_name=tool, tool_args=arguments, tool_call_id=call_id, completion=said)
    return None, [made]


def _calls_a_tool(calls: list[AgentToolCall]) -> bool:
    return any(call.tool_name != TEXT_TOOL for call in calls)


def _background() -> str:
    """Return what an agent knows about the person and the day."""
    config = EmailConfig()
    now = datetime.now(ZoneInfo(config.timezone))
    return (
        f"{config.background.strip() or default_background}\n"
        f"Their address, which you write from: {config.address}\n"
        f"Their time zone: {config.timezone}. Today is {now:%A, %d-%m-%Y}."
    )
