"""The check of a candidate against a shape: misspelt fields, and errors that name the place."""

import difflib
import logging
import re
from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from functools import cache, partial
from typing import Any, Final, cast

from pydantic import BeforeValidator, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from mail.config.toml import typed_problem
from mail.core.suggest import before_hint, did_you_mean, hinted
from mail.errors import ConfigError
from mail.swarms_json.decode import check_plain

logger = logging.getLogger(__name__)

_CLOSE: Final = 0.75
_MOST_LETTERS: Final = 2
"""A name longer or shorter by more than that is another field, not a slip of the pen."""
_ALIASES: Final[Mapping[str, str]] = {
    "breakpoint": "breakpoint_tools",
    "breakpoints": "breakpoint_tools",
    "exclude": "exclude_tools",
    "excluded": "exclude_tools",
}
"""Other words for fields that hold something up or forbid it: who drops one lets it happen."""
_PARTS: Final = ("agents", "actions", "participants", "teams")
_WORD: Final = re.compile(r"'([^']+)'")


def checked(noun: str, shape: Hashable, candidate: object) -> Any:
    """Return a copy of a candidate with its known fields, and the defaults of absent ones.

    Raises:
        ConfigError: the first thing that is wrong with it, and where.
    """
    check_plain(candidate, f"{noun} candidate")
    try:
        return _compiled(shape).validate_python(deepcopy(candidate), strict=True)
    except ValidationError as error:
        raise ConfigError(_told(noun, candidate, error.errors(include_url=False)[0])) from None


@cache
def _compiled(shape: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast("Any", shape))


def _told(noun: str, candidate: object, item: ErrorDetails) -> str:
    place, problem = _place(noun, candidate, item["loc"]), typed_problem(item)
    context = item.get("ctx", {})
    if isinstance(context.get("error"), ConfigError):  # a sentence of its own
        return before_hint(problem, f" ({place})")
    if item["type"] == "literal_error":
        problem = hinted(problem, str(item["input"]), _WORD.findall(context["expected"]))
    return f"{place} {problem}"


def _place(noun: str, candidate: object, path: Sequence[int | str]) -> str:
    """Return ``field 'x' of agent 'y', swarm 'z'``, as far as they have names."""
    holders = [_called(noun, candidate)]
    if len(path) > 1 and path[0] in _PARTS:
        part = str(path[0]).removesuffix("s")
        holder = _called(part, cast("Any", candidate)[path[0]][path[1]])
        if holder != part:
            holders.insert(0, holder)
            path = path[2:]
    shown = ".".join(str(part) for part in path if part != "[key]")
    field = f"field '{shown}' of " if shown else ""
    return field + ", ".join(holders)


def _called(noun: str, candidate: object) -> str:
    """Return the noun and, if the candidate has one, the name."""
    key = "id" if noun == "team" else "name"
    name = candidate.get(key) if isinstance(candidate, dict) else None
    return f"{noun} '{name}'" if isinstance(name, str) and name else noun


def spelled(noun: str, shape: type) -> BeforeValidator:
    """Return the check that no name of a field is misspelt.

    An unknown field that resembles none is logged and otherwise ignored, so that files of other
    versions load.
    """
    return BeforeValidator(partial(_check_spelling, noun, shape.__annotations__))


def _check_spelling(noun: str, fields: Mapping[str, object], candidate: Any) -> Any:
    if not isinstance(candidate, dict):
        return candidate
    for name in [name for name in candidate if name not in fields]:
        absent = [field for field in fields if field not in candidate]
        alias = _ALIASES.get(name.lower())
        close = difflib.get_close_matches(name.lower(), absent, n=1, cutoff=_CLOSE)
        if alias in absent or (close and abs(len(close[0]) - len(name)) <= _MOST_LETTERS):
            meant = alias if alias in absent else close[0]
            raise ValueError(
                f"cannot be used: it has '{name}', which is not a known field. "
                f"Did you mean '{meant}'?"
            )
        hint = did_you_mean(name, fields)  # the one that is meant is there, too
        which = _called(noun, candidate)
        where = (f" ({which})" if which != noun else "") + (hint and f".{hint}")
        logger.warning("unknown %s field %r is ignored%s", noun, name, where)
    return candidate
