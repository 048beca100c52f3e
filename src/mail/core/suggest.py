"""The one "did you mean" of the package."""

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean", "hinted"]


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the closest candidate, or an empty string.

    >>> did_you_mean("wether", ["weather", "math"])
    " Did you mean 'weather'?"
    """
    close = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""


def hinted(text: str, name: str, candidates: Iterable[str]) -> str:
    """Append ``". Did you mean 'x'?"`` to a text when a candidate is close to the name."""
    hint = did_you_mean(name, candidates)
    return f"{text}.{hint}" if hint else text
