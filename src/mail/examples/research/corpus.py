"""The bundled notes: text files with a title and passages, which are found by their words."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

_WORD = re.compile(r"[^\W\d_]{2,}")
_COMMON = re.compile(
    "about|all|and?|are|at|by|can|does?|for|from|ha[sd]|have|how|i[nst]|into|its|me|more|most|not"
    "|notes?|of|on|or|our|say|tell|tha[nt]|the[imryse]*|this|to|was|we|what|when|where|which|who|why"
    "|will|with|you"
)
_STEM: Final = 5
_SUFFIXES: Final = ("ies", "es", "s", "y")


@dataclass(frozen=True, slots=True)
class Passage:
    """One paragraph of a note; ``place`` counts from 1."""

    note: str
    place: int
    text: str

    @property
    def citation(self) -> str:
        """How the passage is cited."""
        return f"[{self.note}:{self.place}]"


@dataclass(frozen=True, slots=True)
class Note:
    """A note by its name."""

    name: str
    title: str
    passages: tuple[Passage, ...]


@cache
def notes() -> Mapping[str, Note]:
    """Return the notes by name, in alphabetical order."""
    found = {}
    folder = files("mail.examples.research") / "notes"
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        name = file.name.removesuffix(".txt")
        title, *texts = file.read_text(encoding="utf-8").strip().split("\n\n")
        passages = tuple(
            Passage(name, at, " ".join(text.split())) for at, text in enumerate(texts, 1)
        )
        found[name] = Note(name, title, passages)
    return MappingProxyType(found)


def search(query: str, limit: int) -> Sequence[Passage]:
    """Return the passages that share most words with a query, the best first."""
    wanted = _stems(query)
    scored = []
    for note in notes().values():
        title = _stems(note.title)
        for passage in note.passages:
            shared = wanted & (_stems(passage.text) | title)
            if shared:
                scored.append((len(shared), passage))
    # Sorting is stable: of equals, the one of the earlier note and place comes first.
    scored.sort(key=lambda pair: -pair[0])
    return [passage for _, passage in scored[:limit]]


def _stems(text: str) -> frozenset[str]:
    words = (word.casefold() for word in _WORD.findall(text))
    return frozenset(_stem(word) for word in words if not _COMMON.fullmatch(word))


def _stem(word: str) -> str:
    """Cut the endings that hide that two words are one: ``dune`` and ``dunes``."""
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _STEM - 2:
            return word.removesuffix(suffix).removesuffix("e")
    return word.removesuffix("e") if len(word) >= _STEM - 1 else word
