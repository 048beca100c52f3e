"""Payloads of real providers, written by hand from their public formats.

Each is two files: ``<name>.jsonl`` has the events of a stream, one a line as they are sent, and
``<name>.json`` the body of the plain reply that says the same. The names are `NAMES`; not every
wire has them all.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["NAMES", "Payload", "load_payload", "names_of"]

Wire = Literal["completions", "responses", "anthropic"]

NAMES = ("text", "one_call", "parallel_calls", "interleaved", "refusal", "code", "cited")

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Payload:
    """A reply, as a stream's events and as a plain body."""

    events: list[dict[str, Any]]
    body: dict[str, Any]


def load_payload(wire: Wire, name: str) -> Payload:
    """Read a payload.

    Raises:
        FileNotFoundError: the wire has none of this name.
    """
    lines = (_HERE / wire / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    body = json.loads((_HERE / wire / f"{name}.json").read_text(encoding="utf-8"))
    return Payload(events=[json.loads(line) for line in lines if line], body=body)


def names_of(wire: Wire) -> list[str]:
    """Return the names of a wire's payloads."""
    return [name for name in NAMES if (_HERE / wire / f"{name}.json").exists()]
