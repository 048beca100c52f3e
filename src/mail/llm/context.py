"""How much a model can read, and how much of that a history takes."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pydantic_core import to_json

from mail.llm.resolve import SCRIPTED_PREFIX
from mail.llm.wires import PROXY_PREFIX

__all__ = ["Gauge", "context_length", "count_tokens", "fingerprint"]

_OPAQUE: Final = frozenset({"data", "encrypted_content", "encrypted_index", "result", "signature"})
_OPAQUE_FROM: Final = 200
_OPAQUE_BYTES_PER_TOKEN: Final = 4
_OPAQUE_AT_MOST: Final = 2000

Entry = Mapping[str, Any]


def context_length(model: str) -> int | None:
    """Return how many tokens a model reads at most, or None if that is unknown.

    The first call loads LiteLLM, which takes seconds: not for the event loop.

    Args:
        model: A name as agents have it, with or without providers in front.
    """
    name = model.removeprefix(PROXY_PREFIX)
    if not name or name.startswith(SCRIPTED_PREFIX):
        return None
    litellm = _litellm()
    parts = name.split("/")
    for start in range(len(parts)):
        try:
            length = litellm.get_model_info("/".join(parts[start:])).get("max_input_tokens")
        except Exception:  # noqa: BLE001, S112 - the library knows no such model; a shorter name?
            continue
        if isinstance(length, int) and length > 0:
            return length
    return None


def count_tokens(model: str, text: str) -> int:
    """Count the tokens of a text, nearly: with the public tokenizer that comes closest.

    Nothing is fetched from the network. The first call loads LiteLLM: not for the event loop.
    """
    # Named like this, the library does not ask Hugging Face for the tokenizers of some models.
    bundled = {"type": "openai_tokenizer", "tokenizer": None}
    name = model.rpartition("/")[2]
    return int(_litellm().token_counter(model=name, custom_tokenizer=bundled, text=text))


def _litellm() -> Any:
    from mail.llm.litellm_model import load_library

    return load_library()


def fingerprint(entry: Entry) -> bytes:
    """Return a short digest of a history entry."""
    return hashlib.blake2b(to_json(entry, fallback=str), digest_size=16).digest()


def _legible(value: Any, key: str = "") -> tuple[Any, int]:
    """Return a value without what only the provider can read, and the tokens of that.

    Signatures, encrypted reasoning and images would be counted far too high as text.
    """
    if isinstance(value, str):
        coded = key in _OPAQUE or value.startswith("data:")
        if coded and len(value) > _OPAQUE_FROM and " " not in value:
            return "", min(len(value) // _OPAQUE_BYTES_PER_TOKEN, _OPAQUE_AT_MOST)
        return value, 0
    if isinstance(value, Mapping):
        pairs = {name: _legible(item, name) for name, item in value.items()}
        return {n: text for n, (text, _) in pairs.items()}, sum(c for _, c in pairs.values())
    if isinstance(value, list | tuple):
        items = [_legible(item, key) for item in value]
        return [text for text, _ in items], sum(count for _, count in items)
    return value, 0


class Gauge:
    """Measures a history that grows: every entry once, so that the cost of a task is linear.

    Args:
        count: Counts the tokens of a text for a model; called in threads.
    """

    def __init__(self, count: Callable[[str, str], int]) -> None:
        self._count = count
        self._model = ""
        self._last = b""
        # Sums of the first 0, 1, 2, ... entries.
        self._bytes = [0]
        self._tokens = [0]

    def observe(self, model: str, entries: Sequence[Entry]) -> None:
        """Take note of a history; what was measured of it stays if it only grew."""
        if model != self._model:
            self._model = model
            self._tokens = [0]
        known = len(self._bytes) - 1
        if known and (known > len(entries) or fingerprint(entries[known - 1]) != self._last):
            self._bytes, self._tokens, known = [0], [0], 0
        for entry in entries[known:]:
            self._bytes.append(self._bytes[-1] + len(to_json(entry, fallback=str)))
        if len(entries) > known:
            self._last = fingerprint(entries[-1])

    def bytes_from(self, start: int) -> int:
        """Return the bytes of the entries from ``start`` on: their tokens are no more."""
        return self._bytes[-1] - self._bytes[start]

    async def count_all(self, entries: Sequence[Entry]) -> None:
        """Count the tokens of the entries last observed, as far as that was not done before."""
        known = len(self._tokens) - 1
        if known < len(entries):
            sums = await asyncio.to_thread(self._sums, entries[known:], self._tokens[-1])
            self._tokens.extend(sums)

    def _sums(self, entries: Sequence[Entry], total: int) -> list[int]:
        sums = []
        for entry in entries:
            text, opaque = _legible(entry)
            total += self._count(self._model, to_json(text, fallback=str).decode()) + opaque
            sums.append(total)
        return sums

    def tokens(self, start: int, end: int | None = None) -> int:
        """Return the tokens of the entries from ``start`` up to ``end``; they must be counted."""
        return self._tokens[-1 if end is None else end] - self._tokens[start]
