"""A script's view of a conversation: mail parsed from its XML, tool results, the setting."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from mail.core.render import PRIMER, result_as_returned, subject_as_sent

if TYPE_CHECKING:
    from mail.core.agents import ToolChoice

_STATUS = re.compile(r"\ASUCCESS(?:: |\Z)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """One incoming message. Plain user text is mail from nobody with that text as its body."""

    sender: str = ""
    sender_type: str = "user"
    subject: str = ""
    body: str = ""

    @classmethod
    def read(cls, content: str) -> Mail:
        """Read the XML of `mail.core.render.build_mail_xml`, or take the text as it is."""
        try:
            root = ElementTree.fromstring(content.strip())  # noqa: S314 - our own rendering
        except ElementTree.ParseError:
            return cls(body=content)
        sender, body = root.find("from"), root.find("body")
        if root.tag != "incoming_message" or sender is None:
            return cls(body=content)
        kind = sender.get("type", "")
        return cls(
            sender=sender.text or "",
            sender_type=kind,
            subject=subject_as_sent(root.findtext("subject", ""), kind),
            body=_unlabelled(body) if body is not None else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of an earlier tool call."""

    tool: str
    content: str
    call_id: str = ""


class ScriptView:
    """A conversation as a script sees it.

    Args:
        messages: The history in the chat-completions format, with or without a system message.
        system: The system prompt; the history's own when empty.
        model: The name of the model.
        tools: The names of the tools on offer.
        tool_choice: The caller's choice of tools.

    ``match`` holds the match of the rule's ``body`` (or ``result``) pattern, if it had one.
    """

    def __init__(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        system: str = "",
        model: str = "",
        tools: Sequence[str] = (),
        tool_choice: ToolChoice = "auto",
    ) -> None:
        self._messages = messages
        self._system = system
        self.model = model
        self.tools = tuple(tools)
        self.tool_choice = tool_choice
        self.match: re.Match[str] | None = None

    @property
    def system(self) -> str:
        """The system prompt, without the note that every prompt has (`mail.core.render.PRIMER`)."""
        told = self._system
        if not told and self._messages and self._messages[0].get("role") == "system":
            told = _text(self._messages[0])
        return told.replace(f"\n\n{PRIMER}", "").replace(PRIMER, "")

    @cached_property
    def mail(self) -> Mail:
        """The newest mail."""
        for message in reversed(self._messages):
            if message.get("role") == "user":
                return Mail.read(_text(message))
        return Mail()

    @cached_property
    def mails(self) -> tuple[Mail, ...]:
        """All mail, oldest first."""
        return tuple(Mail.read(_text(m)) for m in self._messages if m.get("role") == "user")

    @property
    def sender(self) -> str:
        """The sender of the newest mail."""
        return self.mail.sender

    @property
    def subject(self) -> str:
        """The subject of the newest mail."""
        return self.mail.subject

    @property
    def body(self) -> str:
        """The body of the newest mail."""
        return self.mail.body

    def mail_from(self, *senders: str) -> Mail | None:
        """Return the newest mail from one of the senders; without any, from anyone but the system.

        What the system says about an action hides the mail that caused it; this finds it again.
        """
        for mail in reversed(self.mails):
            if mail.sender in senders if senders else mail.sender_type != "system":
                return mail
        return None

    @cached_property
    def results(self) -> tuple[ToolResult, ...]:
        """All tool results, oldest first."""
        return self._results(0)

    @cached_property
    def new_results(self) -> tuple[ToolResult, ...]:
        """The tool results since the agent's last reply."""
        last = max(
            (at for at, m in enumerate(self._messages) if m.get("role") == "assistant"), default=-1
        )
        return self._results(last + 1)

    def result_of(self, tool: str) -> str | None:
        """Return the newest result of a tool, or None; one of an error begins with ``ERROR``."""
        newest = next((r.content for r in reversed(self.results) if r.tool == tool), None)
        return newest and _STATUS.sub("", newest, count=1)

    @property
    def forced(self) -> str | None:
        """The one tool that must be called, if any."""
        if isinstance(self.tool_choice, str):
            return None
        name = self.tool_choice.get("name") or self.tool_choice.get("function", {}).get("name")
        return str(name) if name else None

    @cached_property
    def _names(self) -> dict[str, str]:
        return {
            call["id"]: call["function"]["name"]
            for message in self._messages
            for call in message.get("tool_calls") or ()
        }

    def _results(self, start: int) -> tuple[ToolResult, ...]:
        return tuple(
            ToolResult(
                tool=self._names.get(message.get("tool_call_id", ""), message.get("name", "")),
                content=result_as_returned(_text(message)),
                call_id=message.get("tool_call_id", ""),
            )
            for message in self._messages[start:]
            if message.get("role") == "tool"
        )


def _unlabelled(body: ElementTree.Element) -> str:
    """Return the text of a body; what is labelled in it has a line of its own in the XML."""
    return (body.text or "") + "".join((label.text or "")[1:-1] for label in body)


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))
