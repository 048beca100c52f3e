"""The words of a memory search, the same for every store."""

from collections.abc import Iterable
from typing import Any, Final

__all__ = ["best_matches", "distinct_words"]

_AROUND: Final = ".,;:!?…\"'()[]{}«»“”"


def distinct_words(query: str) -> set[str]:
    """Return the different words of a query, without case and the punctuation around them.

    >>> sorted(distinct_words("Friday? FRIDAY, 50%."))
    ['50%', 'friday']
    """
    return {word.strip(_AROUND) or word for word in query.casefold().split()}


def best_matches(rows: Iterable[Any], words: set[str], count: int) -> list[Any]:
    """Return the rows (the third column is searched) with most of the words, at most ``count``.

    Rows without any of them are left out; equals keep their order.
    """
    scored = []
    for row in rows:
        text = row[2].casefold()
        score = sum(word in text for word in words)
        if score:
            scored.append((score, row))
    scored.sort(key=lambda pair: pair[0], reverse=True)
    return [row for _, row in scored[:count]]
