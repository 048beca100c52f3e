"""What a test can find out afterwards: the provider's log, the actions' traces, the database."""

import itertools
import json
import re
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import httpx

from mail.llm.scripted import call_id
from tests.e2e.swarm import runs
from tests.support.postgres import query

_OPEN = "SELECT task_id FROM tasks WHERE is_running"
_WAITING = "SELECT recipient FROM messages WHERE state = 'ready'"
_REPLIES = "SELECT payload FROM journal WHERE key = 'reply'"
_LATE = 1000  # entries whose commits others may have overtaken
_CALL_ID = re.compile(r"call_[0-9a-f]{32}")
_ENTRIES = "SELECT id, entries FROM history_entries WHERE id > {} ORDER BY id"
_EVENTS = """
SELECT seq, event_type, event_data FROM task_events JOIN tasks ON tasks.id = task
WHERE tasks.task_id = ? AND tasks.caller_id = ? ORDER BY seq
"""
_MAIL = """
SELECT tier, payload FROM messages JOIN tasks ON tasks.id = task
WHERE tasks.task_id = ? AND recipient = ? AND control IS NULL ORDER BY messages.seq
"""
_TABLES = {
    "tasks": "key AS id, task_id, caller_id",
    "task_events": "task, seq, event_type, event_data",
    "messages": "task, seq, recipient, tier, control, state, payload",
    "history_entries": "id, task, agent, entries",
    "journal": "key",
}
_BY_ID = "CREATE INDEX by_id ON tasks (task_id)"  # whoever reads thousands needs it
_HISTORY = """
SELECT entries FROM history_entries JOIN tasks ON tasks.id = task
WHERE tasks.task_id = ? AND agent = ? ORDER BY history_entries.id
"""


def report(figures: str) -> None:
    """Print a test's figures; ``pytest -s`` shows them, and so does a failure."""
    sys.stdout.write(f"\n{figures}\n")


@dataclass(frozen=True)
class Kill:
    """The state of affairs right after a kill.

    ``asked`` counts the provider's requests so far, by digest. ``recorded`` are those whose replies
    the store holds, ``lost`` those that were in flight: made in this process, without a reply in
    the store.
    """

    asked: Counter[str]
    recorded: frozenset[str]
    lost: frozenset[str]


@dataclass
class Evidence:
    """What the processes of one place left behind, in SQLite or, with ``dsn``, in PostgreSQL."""

    folder: Path
    dsn: str = ""
    kills: list[Kill] = field(default_factory=list)
    thaws: list[float] = field(default_factory=list)
    provider_port: int = 0
    _copy: sqlite3.Connection | None = None
    _read: int = 0
    _seen_entry: int = 0
    _recorded: set[str] = field(default_factory=set)
    _records: list[dict[str, Any]] = field(default_factory=list)

    # --- the provider ---------------------------------------------------------------------------

    def requests(self) -> list[dict[str, Any]]:
        """Return the provider's records of requests, in order."""
        return [record for record in self._provider() if record["event"] == "request"]

    def ends(self) -> list[dict[str, Any]]:
        """Return the provider's records of how requests ended."""
        return [record for record in self._provider() if record["event"] == "end"]

    def asked(self) -> Counter[str]:
        """Return how often each model call reached the provider, by digest."""
        return Counter(record["digest"] for record in self.requests())

    def repeats(self) -> int:
        """Return how many calls the provider saw that it had seen before."""
        asked = self.asked()
        return asked.total() - len(asked)

    def _provider(self) -> list[dict[str, Any]]:
        file = self.folder / "provider.jsonl"
        if file.exists():
            with file.open("rb") as log:
                log.seek(self._read)
                whole, _, _ = log.read().rpartition(b"\n")
            if whole:
                self._read += len(whole) + 1
                self._records += [json.loads(line) for line in whole.splitlines()]
        return self._records

    # --- the actions ----------------------------------------------------------------------------

    def runs(self) -> Counter[tuple[str, str]]:
        """Return how often each (action, job) ran."""
        return Counter(runs(self.folder / "actions.jsonl"))

    # --- the database ---------------------------------------------------------------------------

    def open_tasks(self) -> set[str]:
        """Return the ids of running tasks, while a server is at work; asks no server."""
        if self.dsn:
            return {task_id for (task_id,) in query(self.dsn, _OPEN)}
        with closing(sqlite3.connect(f"file:{self.folder}/mail.db?mode=ro", uri=True)) as database:
            return {task_id for (task_id,) in database.execute(_OPEN)}

    def waiting(self) -> list[str]:
        """Return whom mail waits for, while a server is at work; asks no server."""
        if self.dsn:
            return sorted(name for (name,) in query(self.dsn, _WAITING))
        with closing(sqlite3.connect(f"file:{self.folder}/mail.db?mode=ro", uri=True)) as database:
            return sorted(name for (name,) in database.execute(_WAITING))

    def rows(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        """Return a statement's rows, written for SQLite."""
        if self.dsn and self._copy is None:
            numbers = itertools.count(1)
            statement = re.sub(r"\?", lambda mark: f"${next(numbers)}", statement)
            return query(self.dsn, statement.replace("tasks.id", "tasks.key"), *values)
        if self._copy is not None:
            return self._copy.execute(statement, values).fetchall()
        with self.copy() as database:
            return database.execute(statement, values).fetchall()

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Read everything from one copy of the database: nothing changes it any more."""
        with self._copy_of_tables() if self.dsn else self.copy() as self._copy:
            self._copy.execute(_BY_ID)
            try:
                yield
            finally:
                self._copy = None

    @contextmanager
    def _copy_of_tables(self) -> Iterator[sqlite3.Connection]:
        """Copy what the judgements read from PostgreSQL into SQLite's memory."""
        with closing(sqlite3.connect(":memory:")) as database:
            for table, columns in _TABLES.items():
                rows = query(self.dsn, f"SELECT {columns} FROM {table}")  # noqa: S608 - our own
                names = columns.replace("key AS ", "")
                database.execute(f"CREATE TABLE {table} ({names})")
                places = ", ".join("?" * len(names.split(", ")))
                insert = f"INSERT INTO {table} VALUES ({places})"  # noqa: S608 - our own
                database.executemany(insert, rows)
                if "task" in names.split(", "):
                    database.execute(f"CREATE INDEX {table}_by_task ON {table} (task)")
            yield database

    @contextmanager
    def copy(self) -> Iterator[sqlite3.Connection]:
        """Open a copy of the database as it is on disk now."""
        with tempfile.TemporaryDirectory() as folder:
            database = Path(self.folder, "mail.db").resolve()
            for file in database.parent.glob("mail.db*"):
                if file.suffix in (".db", ".db-wal"):
                    shutil.copy(file, folder)
            with closing(sqlite3.connect(Path(folder, "mail.db"))) as database:
                yield database

    async def note_kill(self) -> Kill:
        """Remember how things stand right after a kill, before the next server starts."""
        # First, for other servers may be at work: what is recorded now was asked for before.
        replies = [text for (text,) in self.rows(_REPLIES)]
        entries = self.rows(_ENTRIES.format(self._seen_entry - _LATE))
        self._seen_entry = entries[-1][0] if entries else self._seen_entry
        for text in (*replies, *(text for _, text in entries)):
            self._recorded.update(_CALL_ID.findall(text))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.provider_port}") as client:
            seen = -1
            while seen != (seen := len(self._provider())):
                for _ in range(3):  # answered after what was sent before has arrived
                    await client.get("/")
        asked = self.asked()
        kept = frozenset(digest for digest in asked if call_id(digest, 0) in self._recorded)
        before = self.kills[-1].asked if self.kills else Counter[str]()
        self.kills.append(Kill(asked, kept, frozenset(asked - before) - kept))
        return self.kills[-1]

    def tasks(self) -> list[str]:
        """Return the ids of all tasks in order."""
        return sorted(row[0] for row in self.rows("SELECT task_id FROM tasks"))

    def events(self, task_id: str, who: str = "alice") -> list[tuple[int, str, dict[str, Any]]]:
        """Return a task's log: number, kind and fields of each event."""
        rows = self.rows(_EVENTS, task_id, who)
        return [(seq, kind, json.loads(extra)) for seq, kind, extra in rows]

    def history(self, task_id: str, agent: str) -> list[dict[str, Any]]:
        """Return an agent's history."""
        rows = self.rows(_HISTORY, task_id, agent)
        return [entry for (text,) in rows for entry in json.loads(text)]

    # --- judgements -----------------------------------------------------------------------------

    def check_calls(self, *, in_flight: bool = True) -> None:
        """Check that no recorded reply was asked for again, and nothing but what was in flight.

        With ``in_flight`` false, others may be: of servers that only seemed to be dead. What one
        asks for soon after it is thawed was on its way when it was frozen, and may have waited for
        the model library to be loaded.
        """
        asked = self.asked()
        may_repeat: Counter[str] = Counter()
        moments: dict[str, list[float]] = {digest: [] for digest in asked}
        for request in self.requests():
            moments[request["digest"]].append(request["at"])
        for kill in self.kills:
            may_repeat.update(kill.lost)
            for digest in kill.recorded:
                again = moments[digest][kill.asked[digest] :]
                wrong = [at for at in again if not any(0 <= at - thaw < 10 for thaw in self.thaws)]
                assert not wrong, f"a recorded reply was asked for again: {moments[digest]}"
        for digest, count in asked.items() if in_flight else ():
            assert count <= 1 + may_repeat[digest], "a call that was not in flight was repeated"

    def check_log(
        self, task_id: str, runs: int = 1, agents: Iterable[str] = ("lead", "north", "south")
    ) -> None:
        """Check a finished task: no event or message is lost or doubled, nothing is left over.

        ``runs`` counts its pauses, too, and ``agents`` are those that had work.
        """
        events = self.events(task_id)
        assert [seq for seq, _, _ in events] == list(range(1, len(events) + 1))
        kinds = Counter(kind for _, kind, _ in events)
        assert kinds["task_complete"] == runs and not kinds["task_error"], kinds
        assert events[-1][1] == "task_complete"
        ids = [data["full_message"]["id"] for _, kind, data in events if kind == "new_message"]
        assert len(ids) == len(set(ids))
        done = [data["tool_call_id"] for _, kind, data in events if kind == "action_complete"]
        assert len(done) == len(set(done))
        for agent in agents:
            self._check_history(task_id, agent)
            self._check_order(task_id, agent)
        self._check_mail(task_id)

    def _check_history(self, task_id: str, agent: str) -> None:
        history = self.history(task_id, agent)
        calls = [e["call_id"] for e in history if e.get("type") == "function_call"]
        results = [e["call_id"] for e in history if e.get("type") == "function_call_output"]
        assert calls
        assert calls == results
        assert len(calls) == len(set(calls))
        mails = [entry["content"] for entry in history if entry.get("role") == "user"]
        assert len(mails) == len(set(mails))

    def _check_order(self, task_id: str, agent: str) -> None:
        """Check that an agent read the mail of each tier in the order in which it was stored."""
        read = [entry["content"] for entry in self.history(task_id, agent) if "role" in entry]
        tiers: dict[int, list[int]] = {}
        for tier, payload in self.rows(_MAIL, task_id, agent):
            envelope = json.loads(payload)
            sent, said = f">{envelope['timestamp']}<", escape(envelope["message"]["body"])
            found = [place for place, text in enumerate(read) if sent in text and said in text]
            assert found, (payload, read)
            tiers.setdefault(tier, []).append(found[0])
        assert all(places == sorted(places) for places in tiers.values()), tiers

    def _check_mail(self, task_id: str) -> None:
        statement = """
        SELECT messages.state, recipient, payload FROM messages JOIN tasks ON tasks.id = task
        WHERE tasks.task_id = ?
        """
        rows = self.rows(statement, task_id)
        assert self.rows("SELECT count(*) FROM journal") == [(0,)]
        assert {state for state, _, _ in rows} == {"acked"}
        letters = [(recipient, json.loads(payload)["id"]) for _, recipient, payload in rows]
        assert len(letters) == len(set(letters))
