"""Signatures and encrypted contents: opaque to a client, which must give them back unaltered."""

import base64
import hashlib

__all__ = ["is_sealed", "seal", "signature"]

_SECRET = "only the provider knows this"


def signature(text: str) -> str:
    """Return the signature of a thinking block with this text; it fits no other text."""
    return "ErUB" + _digest("thinking", text, 48)


def seal(text: str) -> str:
    """Return what stands for an encrypted text. `is_sealed` knows it again without the text."""
    inside = _digest("inside", text, 18)
    return f"gAAAAA{inside}{_digest('seal', inside, 18)}"


def is_sealed(token: object, text: str | None = None) -> bool:
    """Whether the token is one of `seal`'s, and if a text is given, of this very text."""
    if not isinstance(token, str) or len(token) != 54 or not token.startswith("gAAAAA"):
        return False
    if text is not None:
        return token == seal(text)
    return token[30:] == _digest("seal", token[6:30], 18)


def _digest(purpose: str, text: str, size: int) -> str:
    raw = hashlib.sha512(f"{_SECRET}/{purpose}/{text}".encode()).digest()[:size]
    return base64.urlsafe_b64encode(raw).decode()
