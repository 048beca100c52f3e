"""Which fields swarms, agents and actions have, and the check of one candidate against them."""

import logging
import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from mail.core.suggest import did_you_mean
from mail.errors import ConfigError

__all__ = ["ACTION", "AGENT", "SWARM", "Candidate", "check_fields", "filled"]

logger = logging.getLogger(__name__)

_REQUIRED: Final = object()


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its type, its default, and for lists the type of the items."""

    kind: type
    default: object = _REQUIRED
    items: type | None = None
    nullable: bool = False

    @property
    def required(self) -> bool:
        """Tell whether the field must be there."""
        return self.default is _REQUIRED


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kind of object in the file and its fields."""

    noun: str
    fields: Mapping[str, Field]


_STRINGS = Field(list, (), str)
_OFF = Field(bool, False)

SWARM: Final = Candidate(
    "swarm",
    {
        "name": Field(str),
        "version": Field(str),
        "entrypoint": Field(str),
        "agents": Field(list),
        "actions": Field(list),
        "action_imports": _STRINGS,
        "enable_interswarm": _OFF,
        "breakpoint_tools": _STRINGS,
        "exclude_tools": _STRINGS,
        "description": Field(str, ""),
        "keywords": _STRINGS,
        "public": _OFF,
        "enable_db_agent_histories": _OFF,
    },
)
AGENT: Final = Candidate(
    "agent",
    {
        "name": Field(str),
        "factory": Field(str),
        "comm_targets": Field(list, _REQUIRED, str),
        "agent_params": Field(dict),
        "enable_entrypoint": _OFF,
        "enable_interswarm": _OFF,
        "can_complete_tasks": _OFF,
        "tool_format": Field(str, "responses"),
        "actions": _STRINGS,
        "exclude_tools": _STRINGS,
    },
)
ACTION: Final = Candidate(
    "action",
    {
        "name": Field(str),
        "description": Field(str),
        "parameters": Field(dict),
        "function": Field(str),
        "idempotent": _OFF,
        "timeout": Field(float, None, nullable=True),
    },
)


def check_fields(shape: Candidate, candidate: object) -> Mapping[str, Any]:
    """Return the candidate when its fields are there and of the right types.

    An unknown field is logged and otherwise ignored, so that files of other versions load.

    Raises:
        ConfigError: it is no object, lacks a field, or a field has the wrong type.
    """
    if not isinstance(candidate, dict):
        raise ConfigError(
            f"{shape.noun} candidate must be a dict, actually got {type(candidate).__name__}"
        )
    for name, field in shape.fields.items():
        if name in candidate:
            _check_value(shape, candidate, name, field)
        elif field.required:
            raise ConfigError(
                f"{shape.noun} candidate must contain a '{name}' field{_which(shape, candidate)}"
            )
    for name in candidate.keys() - shape.fields.keys():
        hint = did_you_mean(str(name), shape.fields)
        logger.warning(
            "unknown %s field %r is ignored%s.%s", shape.noun, name, _which(shape, candidate), hint
        )
    return candidate


def filled(shape: Candidate, candidate: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checked candidate's known fields as a copy, with the defaults of absent ones."""
    return {
        name: deepcopy(candidate[name]) if name in candidate else _default(field)
        for name, field in shape.fields.items()
    }


def _default(field: Field) -> object:
    return [] if field.kind is list else field.default


def _check_value(shape: Candidate, candidate: Mapping[str, Any], name: str, field: Field) -> None:
    value = candidate[name]
    problem = None
    if not _fits(value, field):
        problem = f"must be a {field.kind.__name__}, actually got {type(value).__name__}"
    elif field.items and not all(isinstance(item, field.items) for item in value):
        problem = "must be a list of strings"
    elif field.kind is float and value is not None and not (math.isfinite(value) and value > 0):
        problem = "must be a number above 0"
    if problem:
        where = _which(shape, candidate)
        raise ConfigError(f"{shape.noun} candidate field '{name}' {problem}{where}")


def _fits(value: object, field: Field) -> bool:
    if value is None and field.nullable:
        return True
    if field.kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, field.kind)


def _which(shape: Candidate, candidate: Mapping[str, Any]) -> str:
    name = candidate.get("name")
    return f" ({shape.noun} '{name}')" if isinstance(name, str) and name else ""
