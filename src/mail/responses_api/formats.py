"""``text``: the wanted form of the answer, checked, and put into words for the agent."""

import re
from collections.abc import Mapping
from typing import Any, Final

from mail.responses_api.problems import ResponsesError

__all__ = ["read_text_config"]

_VERBOSITY: Final = ("low", "medium", "high")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_JSON_OBJECT: Final = "The final answer must be one JSON object and nothing else."
_JSON_SCHEMA: Final = "The final answer must be JSON that fits this schema, and nothing else:\n"


def read_text_config(text: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Read ``text`` of a request.

    Returns:
        What asks an agent for the wanted format (a swarm cannot be forced to it), and the field as
        the response repeats it.

    Raises:
        ResponsesError: a format or a verbosity that there is not.
    """
    verbosity, wanted = text.get("verbosity"), text.get("format")
    if verbosity is not None and verbosity not in _VERBOSITY:
        raise ResponsesError(
            f"Invalid value for 'text.verbosity': {verbosity!r}; one of {', '.join(_VERBOSITY)}.",
            "text.verbosity",
            "invalid_value",
        )
    wanted = {} if wanted is None else wanted
    if not isinstance(wanted, Mapping):
        raise ResponsesError("Invalid type for 'text.format': expected an object.", "text.format")
    words, shown = _format(wanted)
    return words, {"format": shown} | ({"verbosity": verbosity} if verbosity else {})


def _format(wanted: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    kind = wanted.get("type", "text")
    if kind == "text":
        return "", {"type": "text"}
    if kind == "json_object":
        return _JSON_OBJECT, {"type": "json_object"}
    if kind == "json_schema":
        from pydantic_core import to_json

        shown = _schema_format(wanted)
        return _JSON_SCHEMA + to_json(shown["schema"]).decode(), shown
    raise ResponsesError(f"Invalid value for 'text.format.type': {kind!r}.", "text.format.type")


def _schema_format(wanted: Mapping[str, Any]) -> dict[str, Any]:
    name, schema = wanted.get("name"), wanted.get("schema")
    description, strict = wanted.get("description"), wanted.get("strict")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _wrong_format("name", "1 to 64 of a-z, A-Z, 0-9, _ and -")
    if not isinstance(schema, Mapping):
        raise _wrong_format("schema", "an object")
    if description is not None and not isinstance(description, str):
        raise _wrong_format("description", "a string")
    if strict is not None and not isinstance(strict, bool):
        raise _wrong_format("strict", "a boolean")
    return {
        "type": "json_schema",
        "name": name,
        "description": description,
        "schema": dict(schema),
        "strict": strict,
    }


def _wrong_format(field: str, wanted: str) -> ResponsesError:
    where = f"text.format.{field}"
    return ResponsesError(f"Invalid '{where}': expected {wanted}.", where)
