"""The one "did you mean" of the package."""

import difflib
from collections.abc import Iterable
from types import ModuleType

_ASKS = ". Did you mean"
_LONGEST = 100
"""Characters of what is compared: it may come from outside, and comparing is quadratic."""


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the closest candidate, or an empty string.

    >>> did_you_mean("wether", ["weather", "math"])
    " Did you mean 'weather'?"
    """
    if len(name) > _LONGEST:
        return ""
    close = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""


def hinted(text: str, name: str, candidates: Iterable[str]) -> str:
    """Append ``". Did you mean 'x'?"`` to a text when a candidate is close to the name."""
    hint = did_you_mean(name, candidates)
    return f"{text}.{hint}" if hint else text


def before_hint(text: str, words: str) -> str:
    """Put words at the end of a text's problem: before its hint and without a full stop there.

    >>> before_hint("no agent 'bos'. Did you mean 'boss'?", " in swarm 'shop'")
    "no agent 'bos' in swarm 'shop'. Did you mean 'boss'?"
    """
    problem, asks, hint = text.partition(_ASKS)
    return f"{problem.removesuffix('.')}{words}{asks}{hint}"


def attribute_hint(error: AttributeError) -> str:
    """Return which public name of a module or class may be meant; see `did_you_mean`."""
    if not isinstance(error.name, str) or not isinstance(error.obj, ModuleType | type):
        return ""
    names = {*dir(error.obj), *getattr(error.obj, "__all__", ())}
    return did_you_mean(error.name, sorted(name for name in names if name[:1] != "_"))
