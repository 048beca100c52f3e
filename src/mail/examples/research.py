"""The research example: two readers look through notes at the same time, and cite what they find.

The notes about the coast in ``data/notes`` are our own.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from mail.api.actions import MAILAction
from mail.core.suggest import did_you_mean
from mail.errors import ToolError
from mail.examples import Prompted, example
from mail.factories.action import LiteLLMActionAgentFunction
from mail.factories.supervisor import LiteLLMSupervisorFunction

LEAD_SYSPROMPT: Final = """\
You lead two readers, `reader_a` and `reader_b`, who have a collection of notes about the coast. You
have not read the notes: say nothing that the readers did not find.

1. Split the user's question into parts that can be looked up by themselves. Give each reader one
   part with `send_request`, both in the same reply, so that they read at the same time. If there is
   only one part, ask `reader_a` alone. Write out what is asked: the readers see only your message.
2. While a finding is missing, call `await_message`.
3. Then call `task_complete`. Answer every part of the question from the findings, and keep the
   citation in square brackets, such as [tides:2], behind each statement. Say which part the notes
   do not answer.
"""

READER_SYSPROMPT: Final = """\
You look things up in a collection of notes about the coast.

1. Call `search_notes` with the important words of the question.
2. If a passage fits, call `read_note` with the note it is from, to see what stands around it.
3. Answer the agent that asked with `send_response`: quote the passage word for word and put its
   citation in square brackets behind it, such as [tides:2].

If nothing fits after two searches, answer that the notes say nothing about it. Add nothing of your
own knowledge.
"""

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
        """The citation of the passage."""
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
    folder = files("mail.examples") / "data" / "notes"
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


_MAX_QUERY: Final = 300
_MAX_LIMIT: Final = 10
_DEFAULT_LIMIT: Final = 3


async def search_notes(args: dict[str, Any]) -> str:
    """Return the passages that fit a query best, one a line, each behind its citation.

    Args:
        args: ``query`` (text of 1 to 300 characters), ``limit`` (1 to 10, default 3).

    Raises:
        ToolError: an argument that is missing or out of range.
    """
    query = args.get("query")
    if not isinstance(query, str) or not 1 <= len(query.strip()) <= _MAX_QUERY:
        raise ToolError(f"query must be a string of 1 to {_MAX_QUERY} characters")
    limit = args.get("limit", _DEFAULT_LIMIT)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MAX_LIMIT:
        raise ToolError(f"limit must be a whole number from 1 to {_MAX_LIMIT}")
    found = search(query, limit)
    if not found:
        return f"no passage found; there are notes on {', '.join(notes())}"
    return "\n".join(f"{passage.citation} {passage.text}" for passage in found)


async def read_note(args: dict[str, Any]) -> str:
    """Return a whole note: its title, and each passage behind its citation.

    Args:
        args: ``note`` (the name of a note, as citations have it).

    Raises:
        ToolError: there is no such note.
    """
    name = args.get("note")
    note = notes().get(name) if isinstance(name, str) else None
    if note is None:
        shown = str(name)[:_MAX_QUERY]
        raise ToolError(f"there is no note '{shown}'.{did_you_mean(shown, notes())}")
    return "\n".join(
        [note.title, *(f"{passage.citation} {passage.text}" for passage in note.passages)]
    )


search_notes_action: Final = MAILAction(
    name="search_notes",
    description="Find the passages of the notes that fit some words best, with their citations",
    parameters={
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": _MAX_QUERY,
                "description": "The important words",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": _MAX_LIMIT,
                "description": "How many passages at most; 3 by default",
            },
        },
        "required": ["query"],
    },
    function=search_notes,
    idempotent=True,
)

read_note_action: Final = MAILAction(
    name="read_note",
    description="Read a whole note, each passage with its citation",
    parameters={
        "type": "object",
        "properties": {
            "note": {
                "type": "string",
                "description": "The note's name, as it stands in citations: tides in [tides:2]",
            },
        },
        "required": ["note"],
    },
    function=read_note,
    idempotent=True,
)


class LiteLLMReaderFunction(Prompted, LiteLLMActionAgentFunction):
    """Finds passages in the notes and quotes them."""

    prompt = READER_SYSPROMPT


class LiteLLMResearchLeadFunction(Prompted, LiteLLMSupervisorFunction):
    """Splits a question among readers and puts their findings together."""

    prompt = LEAD_SYSPROMPT


EXAMPLE: Final = example(
    __name__,
    "LiteLLMReaderFunction",
    ".research:READER",
    (search_notes_action, read_note_action),
    "READER_SYSPROMPT",
)
"""A reader."""
