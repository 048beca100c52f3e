"""What the SQL stores share: columns and the records made of them, and the search of memories.

Each list of columns has the order that the function, or the record, below it takes.
"""

import json
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, Final, TypeVar

from pydantic_core import from_json

from mail.core.events import TaskEvent
from mail.core.tasks import TaskState
from mail.db.desk import LetterRow, ThreadRow
from mail.db.records import Delivery, IdempotencyRow, MemoryRow, OutboxRow, TaskRow
from mail.db.texts import text_size

OWNER_COLUMNS: Final = "swarm_name, caller_role, caller_id"
"""The columns of a `mail.db.records.Owner`."""

OWNED: Final = "swarm_name = $1 AND caller_role = $2 AND caller_id = $3"
"""Of what belongs to the owner in the first three parameters."""

THE_TASK: Final = f"(SELECT key FROM tasks WHERE {OWNED} AND task_id = $4)"
"""The key of the task that ``$1`` to ``$4`` name."""

BURIED: Final = "swarm_name = '' AND caller_role = 'deleted'"
"""Of deleted tasks whose records are still there; see `mail.db.records.Owner.of_deleted`."""

LAST_WORDS: Final = "outbox.state = 'waiting' AND outbox.sender = ''"
"""Of mail for peers that is sent although its task was deleted."""


def as_task(row: Iterable[Any]) -> TaskRow:
    """Make a task of its columns, which are in the order of `TaskRow`."""
    task_id, owner, contributors, start_time, entrypoint, state, remote_swarms, *rest = row
    steps, max_steps, awaited, finish_asked, title, usage, handled = rest
    return TaskRow(
        task_id,
        owner,
        tuple(from_json(contributors)),
        start_time,
        entrypoint,
        TaskState(state),
        tuple(from_json(remote_swarms)),
        steps,
        max_steps,
        bool(awaited),
        bool(finish_asked),
        title,
        usage,
        handled,
    )


MAIL_COLUMNS: Final = "recipient, tier, interrupt, payload, control, seq, attempts"


def as_delivery(task_id: str, row: Iterable[Any]) -> Delivery:
    """Make a delivery of `MAIL_COLUMNS`."""
    recipient, tier, interrupt, *rest = row
    return Delivery(task_id, recipient, tier, bool(interrupt), *rest)


def as_event(task_id: str, row: Iterable[Any]) -> TaskEvent:
    """Make an event of event_type, created_at, seq, description and event_data."""
    kind, timestamp, seq, description, extra = row
    return TaskEvent(
        task_id=task_id,
        kind=kind,
        timestamp=timestamp,
        seq=seq,
        description=description,
        extra=json.loads(extra),
        size=text_size(extra) + text_size(description),
    )


OUTBOX_COLUMNS: Final = (
    "peer, message_id, sender, kind, ref, wrapper, created_at, state, attempts, next_at, "
    "last_error, told"
)
"""The columns of a `mail.db.records.OutboxRow`, but for its task and its number."""

INBOX_COLUMNS: Final = "peer, message_id, receipt, created_at"
"""The columns of a `mail.db.records.InboxRow`."""


def as_outbox(task_id: str, row: Iterable[Any]) -> OutboxRow:
    """Make mail for a peer of `OUTBOX_COLUMNS` and its number."""
    *columns, told, number = row
    return OutboxRow._make((task_id, *columns, bool(told), number, None))


MEMORY_COLUMNS: Final = "namespace, key, value, created_at, updated_at"


def as_memory(row: Iterable[Any]) -> MemoryRow:
    """Make a memory of `MEMORY_COLUMNS`."""
    namespace, *rest = row
    return MemoryRow(tuple(json.loads(namespace)), *rest)


def list_text(texts: Sequence[str]) -> str:
    """Return texts as a JSON list."""
    return f"[{', '.join(map(_quoted, texts))}]"  # as `json.dumps`, but four times as fast


def namespace_text(namespace: tuple[str, ...]) -> str:
    """Return a namespace as its key: a compact JSON list, in ASCII."""
    return f"[{','.join(map(_quoted, namespace))}]"


def namespace_range(prefix: tuple[str, ...]) -> tuple[str, str]:
    """Return between which keys (the second excluded) the namespaces with this prefix lie.

    The prefix is followed by "," or "]" (or the first quote): all of them sort before "^".
    """
    start = namespace_text(prefix)[:-1]
    return start, start + "^"


_ROW_BYTES: Final = 100
_LETTER_BYTES: Final = 250
"""Of a letter's row and of each receipt's: names, ids, times, and most of these in indexes."""
_KEY_BYTES: Final = 300
"""Of an idempotency key's row: its fingerprint, its time, its owner, and these in indexes."""


def key_size(row: IdempotencyRow) -> int:
    """Return about how many bytes an idempotency key takes, which is in an index, too."""
    return _KEY_BYTES + 2 * text_size(row.key) + text_size(row.answer or "")


def letter_size(row: LetterRow) -> int:
    """Return about how many bytes a letter takes, with its receipts."""
    return text_size(row.body) + text_size(row.subject) + _LETTER_BYTES * (1 + len(row.recipients))


def thread_size(row: ThreadRow) -> int:
    """Return about how many bytes a thread takes."""
    return text_size(row.title) + _ROW_BYTES


_AROUND_WORDS: Final = ".,;:!?…\"'()[]{}«»“”"


def distinct_words(query: str) -> set[str]:
    """Return the different words of a query, without case and the punctuation around them.

    >>> sorted(distinct_words("Friday? FRIDAY, 50%."))
    ['50%', 'friday']
    """
    return {word.strip(_AROUND_WORDS) or word for word in query.casefold().split()}


Memory = TypeVar("Memory", bound=Sequence[Any])


def best_matches(
    memories: Iterable[Memory], words: set[str], limit: int, offset: int
) -> list[Memory]:
    """Return a page of the memories that contain most of the words; equals keep their order.

    Args:
        memories: A `MemoryRow` each, or its columns.
        words: Those of the query; a memory without any of them is left out.
        limit: At most so many.
        offset: So many are passed over.
    """
    scored = []
    for memory in memories:
        text = memory[2].casefold()
        score = sum(word in text for word in words)
        if score:
            scored.append((score, memory))
    scored.sort(key=lambda pair: pair[0], reverse=True)
    return [memory for _, memory in scored[offset : offset + limit]]


def join_lists(lists: Iterable[str]) -> str:
    """Return JSON lists, given as text, as one list."""
    insides = (text.strip()[1:-1].strip() for text in lists)
    return f"[{','.join(inside for inside in insides if inside)}]"


_DECISIVE_ROLES: Final = frozenset({"assistant", "tool"})


def tool_format(lists: Sequence[str]) -> str | None:
    """Tell in which shape histories (JSON lists, as text) are kept.

    Returns:
        ``"completions"`` or ``"responses"`` by the first entry that an assistant or a tool wrote;
        None when there is none.
    """
    for text in lists:
        for entry in json.loads(text):
            shape = _shape(entry)
            if shape is not None:
                return shape
    return None


def _shape(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return None
    if entry.get("type") is not None and entry.get("role") not in ("user", "system"):
        return "responses"
    return "completions" if entry.get("role") in _DECISIVE_ROLES else None
