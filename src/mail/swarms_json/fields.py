"""Which fields swarms, agents and actions have, and the check of one candidate against them."""

import dataclasses
import difflib
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from mail.core.approvals import Approval
from mail.core.suggest import did_you_mean
from mail.errors import ConfigError
from mail.services.preferences import memories_problem

logger = logging.getLogger(__name__)

_REQUIRED: Final = object()
_REFERENCE: Final = re.compile(r"(python::)?[^\s:.]+(\.[^\s:.]+)*:[^\s:.]+(\.[^\s:.]+)*")
_URL_PREFIX: Final = "url::"
_TOOL_FORMATS: Final = ("completions", "responses")
MAX_PARTICIPANTS: Final = 1000
MAX_TEAMS: Final = 1000
MAX_TEAM_MEMBERS: Final = 255
"""Beside the lead: with it, as many as a broadcast of the mail desk may have recipients."""
_CLOSE: Final = 0.75
_MOST_LETTERS: Final = 2
"""A name longer or shorter by more than that is another field, not a slip of the pen."""

_ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "breakpoint": "breakpoint_tools",
        "breakpoints": "breakpoint_tools",
        "exclude": "exclude_tools",
        "excluded": "exclude_tools",
    }
)
"""Other words for fields that hold something up or forbid it: who drops one lets it happen."""

Check = Callable[[Any], str | None]
"""Says what is wrong with a value of the right type, or None."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its type, its default, for lists the type of the items, and a further check."""

    kind: type
    default: object = _REQUIRED
    items: type | None = None
    nullable: bool = False
    check: Check | None = None

    @property
    def required(self) -> bool:
        """Tell whether the field must be there."""
        return self.default is _REQUIRED


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kind of object in the file and its fields; ``identity`` is the one that tells which."""

    noun: str
    fields: Mapping[str, Field]
    identity: str = "name"


def _one_of_the_formats(value: str) -> str | None:
    if value in _TOOL_FORMATS:
        return None
    hint = did_you_mean(value, _TOOL_FORMATS)
    return f"must be 'completions' or 'responses', actually got '{value}'.{hint}".removesuffix(".")


def _reference(value: str) -> str | None:
    if value.startswith(_URL_PREFIX):
        return (
            "must be a Python reference such as 'python::module:object'; a 'url::' reference "
            "fetches text, and this is code"
        )
    if _REFERENCE.fullmatch(value) and value.isprintable():
        return None
    return f"must be a Python reference, actually got {value!r}. Expected 'module:object' format"


def _references(values: Sequence[str]) -> str | None:
    return next(filter(None, map(_reference, values)), None)


def _no_blanks(values: Sequence[str] | None) -> str | None:
    good = all(value.strip() for value in values or ())
    return None if good else "must not contain an empty string"


def _not_blank(value: str) -> str | None:
    return None if value.strip() else "must be at least 1 character long"


def _above_zero(value: float | None) -> str | None:
    if value is None or (math.isfinite(value) and value > 0):
        return None
    return "must be a number above 0"


def _at_most(most: int) -> Check:
    def check(values: Sequence[object]) -> str | None:
        if len(values) <= most:
            return None
        return f"must have at most {most} entries, actually got {len(values)}"

    return check


def _members(values: Sequence[str]) -> str | None:
    if not values:
        return "must have at least one entry"
    return _no_blanks(values) or _at_most(MAX_TEAM_MEMBERS)(values)


_VARIABLE: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_SECRET: Final = re.compile(r"auth|cookie|key|password|secret|token", re.IGNORECASE)


def _program(values: Sequence[str] | None) -> str | None:
    if values is None or (values and values[0].strip() and "\0" not in "".join(values)):
        return None
    return "must be a program and its arguments"


def _address(value: str | None) -> str | None:
    if value is None or re.fullmatch(r"https?://[^\s/]+\S*", value):
        return None
    return "must be an http or https address"


def _variables(values: Mapping[str, Any]) -> str | None:
    for name, value in values.items():
        if not isinstance(value, str) or not name.isprintable() or not value.isprintable():
            return f"must have texts of one line as its values; see {str(name)[:64]!r}"
        if _SECRET.search(name) and not _VARIABLE.search(value):
            return (
                f"has a secret in {str(name)[:64]!r}; name an environment variable in its place, "
                "such as '${GITHUB_TOKEN}'"
            )
    return None


def _approval(value: Mapping[str, Any] | None) -> str | None:
    """Check an approval but for what its ``describe`` leads to."""
    if value is None:
        return None
    for name in value:
        if name not in _APPROVAL_FIELDS:
            hint = did_you_mean(str(name), _APPROVAL_FIELDS).rstrip(".")
            return f"has an unknown field {str(name)[:64]!r}.{hint}".removesuffix(".")
    describe = value.get("describe")
    if describe is not None and (problem := _code_reference(describe)):
        return f"has a 'describe' that {problem}"
    try:
        Approval(**{name: each for name, each in value.items() if name != "describe"})
    except ConfigError as error:
        return f"is wrong: {str(error).removeprefix('approval: ')}"
    return None


def _code_reference(value: object) -> str | None:
    return _reference(value) if isinstance(value, str) else "must be a Python reference"


def _approvals(values: Mapping[str, Any]) -> str | None:
    for tool, value in values.items():
        if not isinstance(value, dict):
            return f"must have an object for each tool; see {str(tool)[:64]!r}"
        if problem := _approval(value):
            return f"of {str(tool)[:64]!r} {problem}"
    return None


_APPROVAL_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Approval))
_OFF = Field(bool, False)
_NAMES = Field(list, (), str, check=_no_blanks)
_CODE = Field(str, check=_reference)

SWARM: Final = Candidate(
    "swarm",
    {
        "name": Field(str),
        "version": Field(str),
        "entrypoint": Field(str),
        "agents": Field(list),
        "actions": Field(list),
        "action_imports": Field(list, (), str, check=_references),
        "enable_interswarm": _OFF,
        "breakpoint_tools": _NAMES,
        "exclude_tools": _NAMES,
        "description": Field(str, ""),
        "keywords": _NAMES,
        "public": _OFF,
        "enable_db_agent_histories": _OFF,
        "participants": Field(list, (), check=_at_most(MAX_PARTICIPANTS)),
        "mcp_servers": Field(dict, {}),
        "teams": Field(list, (), check=_at_most(MAX_TEAMS)),
        "approvals": Field(dict, {}, check=_approvals),
        "memories": Field(dict, {}, check=memories_problem),
    },
)
AGENT: Final = Candidate(
    "agent",
    {
        "name": Field(str),
        "factory": _CODE,
        "comm_targets": Field(list, _REQUIRED, str, check=_no_blanks),
        "agent_params": Field(dict),
        "enable_entrypoint": _OFF,
        "enable_interswarm": _OFF,
        "can_complete_tasks": _OFF,
        "tool_format": Field(str, "responses", check=_one_of_the_formats),
        "actions": _NAMES,
        "exclude_tools": _NAMES,
    },
)
ACTION: Final = Candidate(
    "action",
    {
        "name": Field(str),
        "description": Field(str, check=_not_blank),
        "parameters": Field(dict),
        "function": _CODE,
        "idempotent": _OFF,
        "timeout": Field(float, None, nullable=True, check=_above_zero),
        "completes": _OFF,
        "untrusted": _OFF,
        "approval": Field(dict, None, nullable=True, check=_approval),
    },
)
MCP_SERVER: Final = Candidate(
    "MCP server",
    {
        "command": Field(list, None, str, nullable=True, check=_program),
        "env": Field(dict, {}, check=_variables),
        "url": Field(str, None, nullable=True, check=_address),
        "headers": Field(dict, {}, check=_variables),
        "tools": Field(list, None, str, nullable=True, check=_no_blanks),
        "timeout_seconds": Field(float, 30.0, check=_above_zero),
        "optional": _OFF,
    },
)
PARTICIPANT: Final = Candidate("participant", {"name": Field(str), "description": Field(str, "")})
TEAM: Final = Candidate(
    "team",
    {"id": Field(str), "lead": Field(str), "members": Field(list, _REQUIRED, str, check=_members)},
    identity="id",
)


def check_fields(shape: Candidate, candidate: object) -> Mapping[str, Any]:
    """Return the candidate when its fields are there and of the right types.

    Raises:
        ConfigError: it is no object, lacks a field, or a field has the wrong type or value.
    """
    fields = _object(shape, candidate)
    for name in shape.fields:
        check_field(shape, fields, name)
    return fields


def check_identity(shape: Candidate, candidate: object) -> None:
    """Check that a candidate is an object with its identity, and that no field is misspelt.

    An unknown field that resembles none is logged and otherwise ignored, so that files of other
    versions load.

    Raises:
        ConfigError: naming the field, and the one that is meant.
    """
    fields = _object(shape, candidate)
    _check_spelling(shape, fields)
    check_field(shape, fields, shape.identity)


def filled(shape: Candidate, candidate: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checked candidate's known fields as a copy, with the defaults of absent ones."""
    return {
        name: deepcopy(candidate[name]) if name in candidate else _default(field)
        for name, field in shape.fields.items()
    }


def _default(field: Field) -> object:
    return [] if field.kind is list and field.default is not None else deepcopy(field.default)


def _object(shape: Candidate, candidate: object) -> dict[str, Any]:
    if not isinstance(candidate, dict):
        raise ConfigError(
            f"{shape.noun} candidate must be a dict, actually got {type(candidate).__name__}"
        )
    return candidate


def _check_spelling(shape: Candidate, candidate: Mapping[str, Any]) -> None:
    for name in [name for name in candidate if name not in shape.fields]:
        meant = _meant(str(name), [field for field in shape.fields if field not in candidate])
        if meant is None:
            given = did_you_mean(str(name), shape.fields)  # the one that is meant is there, too
            which = _which(shape, candidate) + (given and f".{given}")
            logger.warning("unknown %s field %r is ignored%s", shape.noun, name, which)
        elif shape.fields[meant].required:
            raise _missing(shape, candidate, meant, f"; it has '{name}'. Did you mean '{meant}'?")
        else:
            raise ConfigError(
                f"{shape.noun} candidate has an unknown field '{name}'{_which(shape, candidate)}. "
                f"Did you mean '{meant}'?"
            )


def check_spelling(shape: Candidate, candidate: object) -> None:
    """Check that a candidate is an object, and that no field's name is misspelt.

    Raises:
        ConfigError: as `check_identity`.
    """
    _check_spelling(shape, _object(shape, candidate))


def check_field(shape: Candidate, candidate: Mapping[str, Any], name: str) -> None:
    """Check one field of a candidate.

    Raises:
        ConfigError: it is missing, or has the wrong type or value.
    """
    field = shape.fields[name]
    if name in candidate:
        _check_value(shape, candidate, name, field)
    elif field.required:
        raise _missing(shape, candidate, name)


def _check_value(shape: Candidate, candidate: Mapping[str, Any], name: str, field: Field) -> None:
    value = candidate[name]
    problem = None
    if not _fits(value, field):
        problem = f"must be a {field.kind.__name__}, actually got {type(value).__name__}"
    elif field.items and value and not all(isinstance(item, field.items) for item in value):
        problem = "must be a list of strings"
    elif field.check:
        problem = field.check(value)
    if problem:
        where = _which(shape, candidate)
        raise ConfigError(f"{shape.noun} candidate field '{name}' {problem}{where}")


def _fits(value: object, field: Field) -> bool:
    if value is None and field.nullable:
        return True
    if field.kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, field.kind)


def _missing(
    shape: Candidate, candidate: Mapping[str, Any], name: str, hint: str = ""
) -> ConfigError:
    where = _which(shape, candidate)
    return ConfigError(f"{shape.noun} candidate must contain a '{name}' field{where}{hint}")


def _meant(name: str, absent: Sequence[str]) -> str | None:
    alias = _ALIASES.get(name.lower())
    if alias in absent:
        return alias
    close = difflib.get_close_matches(name.lower(), absent, n=1, cutoff=_CLOSE)
    return close[0] if close and abs(len(close[0]) - len(name)) <= _MOST_LETTERS else None


def _which(shape: Candidate, candidate: Mapping[str, Any]) -> str:
    name = candidate.get(shape.identity)
    return f" ({shape.noun} '{name}')" if isinstance(name, str) and name else ""
