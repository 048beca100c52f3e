"""The commands of ``mail client`` for named memories: list, show, edit, undo and delete them."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mail.cli.common import DONE, one_line
from mail.cli.repl.session import Section, Session
from mail.cli.table import Namespace, argument, option
from mail.errors import MAILError

_WIDEST: Final = 80


section = Section("Named memories", slash=True)
_NAME: Final = argument("name", "the memory, as `memory` lists it")


@section(
    "memory mem",
    "list your named memories, or show one",
    "getting memory",
    argument("name", "the memory; without it, list all", required=False),
)
async def _memory(session: Session, arguments: Namespace) -> int:
    if arguments.name is None:
        return await _list(session, arguments)
    found = await session.client.get_memory(arguments.name)
    if session.shows_json(arguments, found):
        return DONE
    session.screen.note((_state(found), "dim"))
    session.screen.say(found["value"])
    for version in found["versions"]:
        about = f"{version['created_at'][:16]} {version['source']}"
        told = f"version {version['version']}, {about}: {_first_line(version)}"
        session.screen.note((told, "dim"))
    for feedback in found["feedback"]:
        told = f": {one_line(feedback['reason'])}" if feedback["reason"] else ""
        of = f"{feedback['type']} of {one_line(feedback['action'])}"
        told = f"{feedback['created_at'][:16]} {of}: {feedback['status']}{told}"
        session.screen.note((told, "dim"))
    return DONE


async def _list(session: Session, arguments: Namespace) -> int:
    page = await session.client.get_memories()
    lines = [
        f"{each['name']} ({_state(each)})  {_first_line(each)}".rstrip()
        for each in page["memories"]
    ] or ["no memories"]
    if page["learning"]["reason"]:
        lines.append(f"learning is off: {page['learning']['reason']}")
    return session.tell(arguments, page, *lines)


def _state(memory: Mapping[str, Any]) -> str:
    parts = ["default" if memory["is_default"] else f"version {memory['version']}"]
    if memory["waiting"]:
        waits = "1 answer waits" if memory["waiting"] == 1 else f"{memory['waiting']} answers wait"
        parts.append(waits)
    return ", ".join(parts)


def _first_line(holder: Mapping[str, Any]) -> str:
    line, _, rest = holder["value"].strip().partition("\n")
    cut = len(line) > _WIDEST or bool(rest)
    return one_line(line[:_WIDEST]) + (" …" if cut else "")


@section(
    "memory-edit med",
    "give a memory another text",
    "editing memory",
    option("-f", "--file", metavar="PATH", told="take the text from a file"),
    argument("name", "the memory; it need not be there"),
    argument("text", "its new text", nargs=-1),
    free=1,
)
async def _edit(session: Session, arguments: Namespace) -> int:
    text = " ".join(arguments.text)
    if arguments.file is not None:
        try:
            text = await asyncio.to_thread(Path(arguments.file).read_text, "utf-8")
        except (OSError, ValueError) as error:
            raise MAILError(f"cannot read {arguments.file}: {error}") from error
    elif not text:
        raise MAILError("a text is needed, or --file")
    changed = await session.client.put_memory(arguments.name, text)
    return _told(session, arguments, changed)


@section(
    "memory-undo mu",
    "give a memory the text of the version before, or of another one",
    "editing memory",
    _NAME,
    argument(
        "version",
        "the version to have again, 0 for the default (default: the one before)",
        type=int,
        required=False,
    ),
)
async def _undo(session: Session, arguments: Namespace) -> int:
    known = await session.client.get_memory(arguments.name)
    version = arguments.version
    if version is None:
        version = _before(known)
    changed = await session.client.put_memory(
        arguments.name, restore=version, expected_version=known["version"]
    )
    return _told(session, arguments, changed)


def _before(known: Mapping[str, Any]) -> int:
    """Return the version before that of the text; 0 is the default.

    What an undo has made is a version, too: another one goes on from where its text stood before.

    Raises:
        MAILError: the memory has its default.
    """
    versions = known["versions"]
    rest = versions[1:]
    if versions and versions[0]["source"] == "restored":
        places = [at for at, row in enumerate(rest) if row["value"] == versions[0]["value"]]
        if not places:
            raise MAILError("it has its default again, and nothing is before that; give a VERSION")
        rest = rest[places[0] + 1 :]
    return int(rest[0]["version"]) if rest else 0


def _told(session: Session, arguments: Namespace, changed: Mapping[str, Any]) -> int:
    line = f"memory {changed['name']}: {_state(changed)}: {_first_line(changed)}"
    return session.tell(arguments, changed, line)


@section("memory-delete md", "delete a memory with its versions", "deleting memory", _NAME)
async def _delete(session: Session, arguments: Namespace) -> int:
    await session.client.delete_memory(arguments.name)
    answer = {"name": arguments.name, "status": "deleted"}
    return session.tell(arguments, answer, f"memory {arguments.name} deleted")
