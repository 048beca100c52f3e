"""The readers' actions: searching the bundled notes, and reading one."""

from typing import Any, Final

from mail.api.actions import MAILAction
from mail.core.suggest import did_you_mean
from mail.errors import ToolError
from mail.examples.research.corpus import notes, search

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
