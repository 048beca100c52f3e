"""An owner's named memories, such as preferences: reading, changing and taking back.

A memory has one text, of lines. Agents read it by ``{memory:NAME}`` in their system prompts.
Docs: ``docs/memory.md``.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mail.clock import Clock
from mail.core.approvals import MEMORY_NAME
from mail.db.preferences import (
    KEPT_FEEDBACK,
    PREFERENCE_KEY,
    FeedbackRow,
    PreferenceChange,
    Source,
    VersionRow,
    preference_namespace,
)
from mail.db.records import MemoryRow, Owner
from mail.db.store import Store
from mail.errors import ConfigError, MemoryConflict, ProtocolError, StoreConflict, UnknownMemory

MAX_MEMORY_BYTES: Final = 16 * 1024
"""The most bytes of a memory."""

MAX_MEMORIES: Final = 64
_MOST_NAMES: Final = 4_096  # of a deleted memory the number of its last version is kept
"""The number of memories that an owner may have beside those that the swarm declares."""

_PLACEHOLDER: Final = re.compile(rf"\{{memory:({MEMORY_NAME.pattern})\}}")
_TRIES: Final = 8
_TEXT_FIELDS: Final = ("content", "value", "text")
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]|[\ud800-\udfff]")


def check_memory_name(name: str) -> str:
    """Return a name that a memory can have.

    Raises:
        ProtocolError: it cannot.
    """
    if not MEMORY_NAME.fullmatch(name):
        raise ProtocolError(
            "the name of a memory has 1 to 64 ASCII letters, digits, '_' and '-', and begins with "
            "a letter or digit"
        )
    return name


def memory_problem(text: str) -> str | None:
    """Say what is wrong with the text of a memory, or return None."""
    if _CONTROL.search(text):
        return "must not contain control characters"
    size = len(text.encode())
    if size > MAX_MEMORY_BYTES:
        return f"has {size:,} bytes, and at most {MAX_MEMORY_BYTES:,} are kept"
    return None


def memories_problem(memories: Mapping[str, Any]) -> str | None:
    """Say what is wrong with the memories that a swarm declares, or return None."""
    if len(memories) > MAX_MEMORIES:
        return f"must have at most {MAX_MEMORIES} entries, actually got {len(memories)}"
    for name, text in memories.items():
        if not MEMORY_NAME.fullmatch(str(name)):
            return f"has a name of a memory that cannot be one: {str(name)[:64]!r}"
        problem = memory_problem(text) if isinstance(text, str) else "must be a text"
        if problem is not None:
            return f"has a default for '{name}' that cannot be used: it {problem}"
    return None


def checked_memories(memories: Mapping[str, str]) -> dict[str, str]:
    """Return the memories that a swarm declares, with plain line ends.

    Raises:
        ConfigError: a name or a text cannot be one.
    """
    if not isinstance(memories, Mapping):
        raise ConfigError("memories must be a mapping of names to texts")
    problem = memories_problem(memories)
    if problem is not None:
        raise ConfigError(f"'memories' {problem}")
    return dict(memories)


def check_memory_text(text: str) -> str:
    """Return a text that a memory can have, with plain line ends.

    Raises:
        ProtocolError: it cannot.
    """
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    problem = memory_problem(plain)
    if problem is not None:
        text = f"the text of a memory {problem}"
        raise ProtocolError(text, [{"field": "value", "problem": problem}])
    return plain


def memory_value(text: str) -> dict[str, Any]:
    """Return what a text is stored as: the shape that LangMem gives its memories."""
    return {"kind": "Memory", "content": {"content": text}}


def memory_text(value: Any) -> str | None:
    """Return the text of a stored memory, also of one that a program has put there; or None."""
    for _ in range(2):
        if isinstance(value, Mapping):
            value = next((value[name] for name in _TEXT_FIELDS if name in value), None)
    return value if isinstance(value, str) else None


async def stored_text(store: Store, owner: Owner, name: str) -> str | None:
    """Return the text of an owner's memory, or None when it has none."""
    row = await store.get_memory(owner, preference_namespace(owner.swarm, name), PREFERENCE_KEY)
    return None if row is None else memory_text(json.loads(row.value))


def memories_in(prompt: str) -> list[str]:
    """Return the names of the memories that a prompt reads, each once."""
    return list(dict.fromkeys(_PLACEHOLDER.findall(prompt)))


async def filled_prompt(prompt: str, read: Callable[[str], Awaitable[str]]) -> str:
    """Put memories in the place of ``{memory:NAME}`` in a prompt.

    Each comes between ``<memory name="NAME">`` and ``</memory>``, which it cannot end itself, and
    what looks like a placeholder in it stays as it is.

    Args:
        prompt: The prompt.
        read: Returns the text of a memory.
    """
    texts: dict[str, str] = {}
    for name in memories_in(prompt):
        cut = (await read(name)).encode(errors="replace")[:MAX_MEMORY_BYTES]  # programs put more
        plain = cut.decode(errors="ignore")
        held = re.sub(r"<(?=\s*+/?\s*+memory\b)", "&lt;", plain, flags=re.IGNORECASE)
        texts[name] = f'<memory name="{name}">\n{held}\n</memory>'
    return _PLACEHOLDER.sub(lambda found: texts[found[1]], prompt)


class Memory(NamedTuple):
    """A memory as its owner sees it.

    Attributes:
        name: Its name.
        value: Its text; the swarm's default where there is none.
        is_default: Nobody has changed it.
        version: The number of the newest version; 0 without any.
        updated_at: The time of its last change; None if there was none.
        updated_by: The source of that, as `mail.db.preferences.VersionRow` has it.
        waiting: The number of pieces of feedback that wait for it.
    """

    name: str
    value: str
    is_default: bool
    version: int = 0
    updated_at: str | None = None
    updated_by: Source | None = None
    waiting: int = 0


class MemoryView(NamedTuple):
    """A memory with its versions and the newest feedback on it, both newest first."""

    memory: Memory
    versions: list[VersionRow]
    feedback: list[FeedbackRow]


@dataclass(slots=True, eq=False)
class Memories:
    """The named memories of one owner.

    Attributes:
        store: An open store.
        owner: Their owner.
        clock: The time.
        defaults: The swarm's texts of those that nobody has changed.
    """

    store: Store
    owner: Owner
    clock: Clock
    defaults: Mapping[str, str] = field(default_factory=dict)

    async def listed(self) -> list[Memory]:
        """Return the swarm's memories and the owner's own, in order of the names."""
        newest = {row.name: row for row in await self.store.preferences(self.owner)}
        waiting = await self.store.waiting_feedback(self.owner)
        own = {name for name, row in newest.items() if row.source != "deleted"}
        names = sorted({*self.defaults, *own, *waiting})
        return [await self._memory(name, newest.get(name), waiting.get(name, 0)) for name in names]

    async def known(self, name: str) -> Memory:
        """Return a memory as it is, whether or not there is one of that name."""
        versions = await self.store.preference_versions(self.owner, name)
        return await self._memory(name, versions[0] if versions else None, 0)

    async def text(self, name: str) -> str:
        """Return the text of a memory: its own, else the swarm's default, else none."""
        text = await stored_text(self.store, self.owner, name)
        return self.defaults.get(name, "") if text is None else text

    async def view(self, name: str) -> MemoryView:
        """Return a memory with its history.

        Raises:
            UnknownMemory: the swarm declares none of that name, and the owner has none.
        """
        versions = await self.store.preference_versions(self.owner, name)
        feedback = await self.store.feedback_on(self.owner, name, KEPT_FEEDBACK)
        waiting = (await self.store.waiting_feedback(self.owner)).get(name, 0)
        memory = await self._memory(name, versions[0] if versions else None, waiting)
        if memory.is_default and not (name in self.defaults or waiting):
            raise UnknownMemory
        return MemoryView(memory, [row for row in versions if row.source != "deleted"], feedback)

    async def _memory(self, name: str, newest: VersionRow | None, waiting: int) -> Memory:
        text = await stored_text(self.store, self.owner, name)
        number = newest.version if newest else 0
        if text is None:
            return Memory(name, self.defaults.get(name, ""), True, number, waiting=waiting)
        if newest is None or newest.value != text:
            return Memory(name, text, False, number, None, "program", waiting)
        return Memory(name, text, False, number, newest.created_at, newest.source, waiting)

    async def write(self, name: str, text: str, expected: int | None = None) -> Memory:
        """Give a memory another text.

        Args:
            name: The memory; it need not be there.
            text: The text.
            expected: The number of the version that the caller knows; None for any.

        Raises:
            ProtocolError: the name or the text is none, or there are too many memories.
            MemoryConflict: the memory has another version.
        """
        check_memory_name(name)
        return await self._change(name, check_memory_text(text), "person", expected)

    async def restore(self, name: str, version: int, expected: int | None = None) -> Memory:
        """Give a memory the text of an earlier version; 0 is the swarm's default.

        Raises:
            UnknownMemory: there is no such memory.
            ProtocolError: the version is not kept.
            MemoryConflict: the memory has another version than the expected one.
        """
        view = await self.view(name)
        kept = {row.version: row.value for row in view.versions}
        if name in self.defaults:
            kept[0] = self.defaults[name]
        if version not in kept:
            numbers = ", ".join(map(str, sorted(kept))) or "none"
            raise ProtocolError(f"version {version} is not kept; those that are: {numbers}")
        return await self._change(name, kept[version], "restored", expected)

    async def delete(self, name: str, expected: int | None = None) -> None:
        """Remove a memory, its versions and the feedback on it; the swarm's default counts again.

        Raises:
            UnknownMemory: there is no such memory.
            MemoryConflict: the memory has another version than the expected one.
        """
        known = (await self.view(name)).memory
        _check_version(known, expected)
        version = VersionRow(name, known.version + 1, "", self.clock.now(), "deleted")
        change = PreferenceChange(owner=self.owner, name=name, versions=(version,), forget=True)
        try:
            await self.store.change_preference(change)
        except StoreConflict:
            raise MemoryConflict from None

    async def _change(self, name: str, text: str, source: Source, expected: int | None) -> Memory:
        for _ in range(_TRIES):
            versions = await self.store.preference_versions(self.owner, name)
            if not versions and name not in self.defaults:
                rows = await self.store.preferences(self.owner)
                if len(rows) >= _MOST_NAMES:
                    text = f"there have been {_MOST_NAMES:,} names of memories; use one again"
                    raise ProtocolError(text)
                own = (row for row in rows if row.source != "deleted")
                if sum(row.name not in self.defaults for row in own) >= MAX_MEMORIES:
                    text = f"there are {MAX_MEMORIES} memories already, which is the limit"
                    raise ProtocolError(text)
            known = await self._memory(name, versions[0] if versions else None, 0)
            _check_version(known, expected)
            added = successors(known, text, source, self.clock.now())
            memory = memory_row(self.owner, added[-1])
            change = PreferenceChange(owner=self.owner, name=name, versions=added, memory=memory)
            try:
                await self.store.change_preference(change)
            except StoreConflict:
                if expected is not None:
                    raise MemoryConflict from None
                continue
            waiting = await self.store.waiting_feedback(self.owner)
            return await self._memory(name, added[-1], waiting.get(name, 0))
        raise MemoryConflict


def _check_version(known: Memory, expected: int | None) -> None:
    if expected is not None and expected != known.version:
        raise MemoryConflict


def successors(
    known: Memory, text: str, source: Source, now: str, feedback: FeedbackRow | None = None
) -> tuple[VersionRow, ...]:
    """Return the versions that a new text adds.

    A text that a program has put into the store becomes a version first, so that it can be had
    again.
    """
    number, found = known.version, tuple[VersionRow, ...]()
    if known.updated_by == "program":
        number += 1
        found = (VersionRow(known.name, number, known.value, now, "program"),)
    about = (feedback.approval_id, feedback.task_id) if feedback else ("", "")
    return (*found, VersionRow(known.name, number + 1, text, now, source, *about))


def memory_row(owner: Owner, version: VersionRow) -> MemoryRow:
    """Return the row that makes a version the current one."""
    value = json.dumps(memory_value(version.value), ensure_ascii=False)
    namespace = preference_namespace(owner.swarm, version.name)
    return MemoryRow(namespace, PREFERENCE_KEY, value, version.created_at, version.created_at)
