"""Parsers of flag values that are JSON, and flags that several commands share."""

import argparse
import json
from typing import Any, Final

__all__ = ["add_json", "add_key", "json_list", "json_object", "json_or_text", "options", "targets"]

_RESERVED: Final = frozenset(
    {
        *("body", "subject", "msg_type", "entrypoint", "show_events", "task_id", "resume_from"),
        *("self", "stream_tokens", "idempotency_key"),
        *("input", "tools", "instructions", "previous_response_id", "tool_choice"),
        "parallel_tool_calls",
    }
)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the flag that prints the complete response."""
    parser.add_argument(
        *("-v", "--verbose", "--json"),
        dest="json",
        action="store_true",
        help="print the complete response as JSON",
    )


def add_key(parser: argparse.ArgumentParser) -> None:
    """Add the flag that makes a request safe to repeat."""
    parser.add_argument(
        *("-ik", "--idempotency-key"),
        metavar="KEY",
        help="a unique name for this request, which makes it safe to repeat",
    )


def json_object(text: str) -> dict[str, Any]:
    """Read a JSON object."""
    value = _read(text)
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("must be a JSON object, for example '{\"max_steps\": 5}'")
    return value


def options(text: str) -> dict[str, Any]:
    """Read the JSON object of ``--kwargs``."""
    value = json_object(text)
    for name in value:
        if name in _RESERVED:
            raise argparse.ArgumentTypeError(
                f"'{name}' is not an option of the run; use its own flag"
            )
    return value


def json_list(text: str) -> list[Any]:
    """Read a JSON list."""
    value = _read(text)
    if not isinstance(value, list):
        raise argparse.ArgumentTypeError("must be a JSON list")
    return value


def json_or_text(text: str) -> Any:
    """Read a JSON object; anything else is plain text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, dict) else text


def targets(text: str) -> list[str]:
    """Read addresses: a JSON list, or ``agent@swarm`` separated by commas."""
    if not text.lstrip().startswith("["):
        return [target for part in text.split(",") if (target := part.strip())]
    value = json_list(text)
    if not all(isinstance(target, str) for target in value):
        raise argparse.ArgumentTypeError("must be a JSON list of strings")
    return value


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not valid JSON: {error}") from None
