"""What the provider saw."""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.provider.inbound import Conversation, WireName, conversation_of, messages_of

__all__ = ["Log", "Seen"]


@dataclass(slots=True, kw_only=True)
class Seen:
    """One request. ``outcome`` is complete, refused, fault, cut or client_gone.

    ``first_token_at`` is the reading of `time.perf_counter` when the first piece of the reply's
    content was written (of a plain reply: the reply). ``personality`` is the provider that it came
    to, ``named`` the model where the path names it, ``refusal`` what was said in place of a reply.
    """

    n: int
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    wire: WireName = "completions"
    path: str = ""
    at: float = field(default_factory=time.time)
    status: int | None = None
    outcome: str | None = None
    personality: str = ""
    named: str | None = None
    refusal: str = ""
    first_token_at: float | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the request (Responses: its input items)."""
        return messages_of(self.wire, self.body)

    @property
    def model(self) -> str:
        """The model asked for."""
        return self.named or str(self.body.get("model"))

    @property
    def streamed(self) -> bool:
        """Whether the reply is to come in pieces."""
        if self.wire == "gemini":
            return ":stream" in self.path
        if self.wire == "bedrock":
            return self.path.endswith("-stream")
        return bool(self.body.get("stream", self.wire == "ollama"))

    @property
    def conversation(self) -> Conversation:
        """The request as a chat, whatever its format."""
        return conversation_of(self.wire, self.body)

    @property
    def system(self) -> str:
        """The system prompt, wherever the format has it."""
        return self.conversation.system

    @property
    def tool_names(self) -> list[str]:
        """The names of the tools on offer; of nameless built-in tools, their types."""
        return list(self.conversation.tools)

    @property
    def tool_choice(self) -> Any:
        """The tool choice as it was sent, or None."""
        return self.body.get("tool_choice")

    @property
    def digest(self) -> str:
        """A digest of model and messages: equal for a request that was sent again."""
        apart = [] if self.wire == "completions" else [self.system]
        text = json.dumps([self.model, self.messages, *apart], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


class Log:
    """JSON lines: a ``request`` when it arrives and an ``end`` when it is over."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def request(self, seen: Seen) -> None:
        """Note a request at its arrival, so that a killed process cannot hide it."""
        if self._path is None:
            return
        self._write(
            {
                "event": "request",
                "n": seen.n,
                "at": seen.at,
                "model": seen.model,
                "digest": seen.digest,
                "messages": len(seen.messages),
                "roles": [message.get("role", message.get("type")) for message in seen.messages],
                "system": seen.system[:80],
                "stream": seen.streamed,
            }
        )

    def end(self, seen: Seen) -> None:
        """Note how a request ended."""
        if self._path is None:
            return
        record = {"event": "end", "n": seen.n, "status": seen.status, "outcome": seen.outcome}
        self._write(record | {"digest": seen.digest})

    def _write(self, record: dict[str, Any]) -> None:
        assert self._path is not None
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
