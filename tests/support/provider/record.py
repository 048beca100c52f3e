"""What the provider saw."""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Log", "Seen"]


@dataclass(slots=True, kw_only=True)
class Seen:
    """One request. ``outcome`` is complete, refused, fault, cut or client_gone."""

    n: int
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    at: float = field(default_factory=time.time)
    status: int | None = None
    outcome: str | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the request."""
        return list(self.body.get("messages") or ())

    @property
    def model(self) -> str:
        """The model asked for."""
        return str(self.body.get("model"))

    @property
    def tool_names(self) -> list[str]:
        """The names of the tools on offer."""
        return [tool["function"]["name"] for tool in self.body.get("tools") or ()]

    @property
    def digest(self) -> str:
        """A digest of model and messages: equal for a request that was sent again."""
        text = json.dumps([self.model, self.messages], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


class Log:
    """JSON lines: a ``request`` when it arrives and an ``end`` when it is over."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def request(self, seen: Seen) -> None:
        """Note a request at its arrival, so that a killed process cannot hide it."""
        system = next((m["content"] for m in seen.messages if m.get("role") == "system"), "")
        self._write(
            {
                "event": "request",
                "n": seen.n,
                "at": seen.at,
                "model": seen.model,
                "digest": seen.digest,
                "messages": len(seen.messages),
                "roles": [message.get("role") for message in seen.messages],
                "system": str(system)[:80],
                "stream": bool(seen.body.get("stream")),
            }
        )

    def end(self, seen: Seen) -> None:
        """Note how a request ended."""
        record = {"event": "end", "n": seen.n, "status": seen.status, "outcome": seen.outcome}
        self._write(record | {"digest": seen.digest})

    def _write(self, record: dict[str, Any]) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
