"""The words of a memory search, the same for every store."""

from typing import Final

__all__ = ["distinct_words"]

_AROUND: Final = ".,;:!?…\"'()[]{}«»“”"


def distinct_words(query: str) -> set[str]:
    """Return the different words of a query, without case and the punctuation around them.

    >>> sorted(distinct_words("Friday? FRIDAY, 50%."))
    ['50%', 'friday']
    """
    return {word.strip(_AROUND) or word for word in query.casefold().split()}
