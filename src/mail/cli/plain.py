"""Making text from others safe to print on a terminal."""

import unicodedata
from typing import Final

__all__ = ["cleaned", "one_line"]

_KEPT: Final = frozenset("\n\t")
_REORDERING: Final = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the display order of text."""


def cleaned(text: str) -> str:
    r"""Return the text with control characters as ``\uXXXX``; line ends and tabs stay.

    The meaning of JSON text does not change.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(sign) if _obeyed(sign) else sign for sign in text)


def one_line(text: str, most: int = 200) -> str:
    """Return the text's words on one safe line with a maximum length."""
    line = cleaned(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def _obeyed(sign: str) -> bool:
    if sign in _KEPT:
        return False
    return sign in _REORDERING or unicodedata.category(sign) in ("Cc", "Cs")


def _escaped(sign: str) -> str:
    return f"\\u{ord(sign):04x}"
