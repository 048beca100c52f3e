"""What all ``url::`` references of one definition from elsewhere may take together."""

import time
from collections.abc import Callable
from typing import Final

from mail.errors import ConfigError

__all__ = ["MAX_BYTES", "TIMEOUT", "ReferenceBudget"]

TIMEOUT: Final = 10.0
MAX_BYTES: Final = 4 * 1024 * 1024
_DOCUMENTS: Final = 32
_SECONDS: Final = 30.0
_MEBIBYTE: Final = 1024 * 1024
_ALL_BYTES: Final = 8 * _MEBIBYTE


class ReferenceBudget:
    """Counts the documents of one definition, their bytes, and the time since the first of them.

    Args:
        documents: How many there may be.
        seconds: How long all of them may take.
        size: How many bytes all of them may have.
        clock: Tells the time, in seconds.
    """

    def __init__(
        self,
        documents: int = _DOCUMENTS,
        seconds: float = _SECONDS,
        size: int = _ALL_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._documents = documents
        self._seconds = seconds
        self._size = size
        self._clock = clock
        self._counted = 0
        self._received = 0
        self._began: float | None = None

    def take(self) -> tuple[float, int]:
        """Count one more document; return the seconds and the bytes that it may take.

        Raises:
            ConfigError: it is one too many, or as `check`.
        """
        self._counted += 1
        if self._counted > self._documents:
            raise _refusal(f"there may be {self._documents} of them")
        self.check()
        return min(TIMEOUT, self._left()), min(MAX_BYTES, self._size - self._received)

    def receive(self, count: int) -> None:
        """Count the bytes of a document, whole or not."""
        self._received += count

    def check(self) -> None:
        """Check that something is left for another document.

        Raises:
            ConfigError: the time is up, or there were too many bytes.
        """
        if self._received >= self._size:
            raise _refusal(f"the documents may have {self._size / _MEBIBYTE:g} MiB together")
        if self._left() <= 0:
            raise _refusal(f"the documents may take {self._seconds:g} seconds together")

    def _left(self) -> float:
        now = self._clock()
        if self._began is None:
            self._began = now
        return self._began + self._seconds - now


def _refusal(limit: str) -> ConfigError:
    return ConfigError(f"too many url:: references in a definition from elsewhere: {limit}")
